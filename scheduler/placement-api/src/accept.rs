//! Which media types a client takes: the header `Accept`.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// JSON, which every body of an answer is.
pub(super) const JSON: &str = "application/json";
/// HTML, the format of errors for clients that accept nothing else.
pub(super) const HTML: &str = "text/html";

/// The media ranges that a client takes, each with its quality in thousandths.
#[derive(Clone, Debug, Default)]
pub(super) struct Accept(Option<Vec<(String, u16)>>);

impl Accept {
    /// Reads the header; absent or `*/*` means JSON.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter();
        let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        let joined = values.join(",");
        match joined.trim() {
            "" | "*/*" => Self(None),
            text => Self(Some(text.split(',').filter_map(range).collect())),
        }
    }

    /// Says how much the client wants this media type; 0 is not at all.
    pub(super) fn quality(&self, media_type: &str) -> u16 {
        let Some(ranges) = &self.0 else {
            return if media_type == JSON { 1000 } else { 0 };
        };
        let family = media_type.split('/').next().unwrap_or_default();
        let specificity = |range: &str| match range {
            "*/*" => Some(0),
            _ if range.strip_suffix("/*") == Some(family) => Some(1),
            _ if range == media_type => Some(2),
            _ => None,
        };
        let matching = ranges
            .iter()
            .filter_map(|(range, quality)| Some((specificity(range)?, *quality)));
        matching.max().map_or(0, |(_, quality)| quality)
    }
}

/// Reads one range, as `text/html;q=0.8`.
fn range(text: &str) -> Option<(String, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().filter(|range| range.contains('/'))?;
    let quality = parts.find_map(|part| part.strip_prefix("q="));
    Some((
        range.to_ascii_lowercase(),
        quality.map_or(1000, thousandths),
    ))
}

/// Reads a quality, `0` to `1` with at most three decimals; what cannot be read is 0.
fn thousandths(text: &str) -> u16 {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    match whole {
        "1" => 1000,
        "0" | "" => format!("{decimals:0<3.3}").parse().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_range_decides() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (header, json, html) in [
            ("", 1000, 0),
            ("*/*", 1000, 0),
            ("application/json", 1000, 0),
            ("text/html", 0, 1000),
            ("text/plain", 0, 0),
            (browser, 800, 1000),
            ("application/*;q=0.5, application/json;q=0", 0, 0),
            ("text/*;q=0.25", 0, 250),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, header.parse().unwrap());
            let accept = Accept::of(&headers);
            assert_eq!(
                (accept.quality(JSON), accept.quality(HTML)),
                (json, html),
                "{header}"
            );
        }
    }
}
