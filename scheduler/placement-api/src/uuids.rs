//! The spellings of a UUID that OpenStack takes.

use uuid::Uuid;

/// Reads a UUID with or without dashes, in braces, or with `urn:uuid:` before it.
pub(super) fn parse(text: &str) -> Option<Uuid> {
    if text.len() > 64 {
        return None;
    }
    let bare = text.replace("urn:", "").replace("uuid:", "");
    let digits = bare.trim_matches(['{', '}']).replace('-', "");
    Uuid::try_parse(&digits).ok().filter(|_| digits.len() == 32)
}

/// Says whether a text is a UUID with its dashes.
pub(super) fn is_dashed(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok()
}

/// Reads a UUID as it is stored and shown: small letters, with dashes.
pub(super) fn exact(text: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(text).ok()?;
    let small = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    (text.len() == 36 && small).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_mean_the_same() {
        let plain = "b4c1f8e2-5d3a-4f6b-9c7d-1e2f3a4b5c6d";
        let uuid = Uuid::try_parse(plain).unwrap();
        for text in [
            plain.to_owned(),
            plain.to_uppercase(),
            plain.replace('-', ""),
            format!("{{{plain}}}"),
            format!("urn:uuid:{plain}"),
        ] {
            assert_eq!(parse(&text), Some(uuid), "{text}");
            assert_eq!(exact(&text).is_some(), text == plain, "{text}");
        }
        for text in ["", "x", "b4c1f8e2", &"a".repeat(33), &"-".repeat(100_000)] {
            assert_eq!(parse(text), None, "{text:.40}");
        }
    }
}
