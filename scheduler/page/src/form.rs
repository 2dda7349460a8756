//! The parameters of a query, as a browser sends a form.
//!
//! Invariant: what is longer than [`QUERY_MAX`] or not UTF-8 is refused, not cut.

use percent_encoding::percent_decode_str;

/// The longest query.
pub const QUERY_MAX: usize = 4096;
/// The longest path.
pub const PATH_MAX: usize = 1024;

/// Parameters in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a query; nothing if it is too long or not UTF-8.
    #[must_use]
    pub fn parse(query: &str) -> Option<Self> {
        if query.len() > QUERY_MAX {
            return None;
        }
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key)?, decode(value)?))
        });
        pairs.collect::<Option<_>>().map(Self)
    }

    /// Returns the first value of a parameter without surrounding blanks; nothing if it is absent or empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(name, _)| name == key)?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }
}

fn decode(text: &str) -> Option<String> {
    segment(&text.replace('+', " "))
}

/// Decodes a part of a path.
#[must_use]
pub fn segment(text: &str) -> Option<String> {
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read() {
        let form =
            Form::parse("flavor=a%20b+c&host=&x&flavor=second&%C3%A4=%3Cb%3E").expect("valid");
        assert_eq!(form.get("flavor"), Some("a b c"));
        assert_eq!((form.get("host"), form.get("x")), (None, None));
        assert_eq!(form.get("ä"), Some("<b>"));
        assert_eq!(form.get("absent"), None);
        assert_eq!(Form::parse(""), Some(Form::default()));
        assert_eq!(Form::parse("a=%ff"), None);
        assert_eq!(Form::parse(&"a".repeat(QUERY_MAX + 1)), None);
    }
}
