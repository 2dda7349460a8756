//! The answer: one line of JSON with the members `success`, `info` and `result`.

use std::fmt::Write as _;

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the request can be met.
    pub success: bool,
    /// A sentence for people.
    pub info: String,
    /// The result in JSON.
    pub result: String,
}

impl Answer {
    pub(super) fn yes(info: &str, result: String) -> Self {
        Answer {
            success: true,
            info: format!("Request successful: {info}"),
            result,
        }
    }

    pub(super) fn no(info: &str) -> Self {
        Answer {
            success: false,
            info: format!("Request failed: {info}"),
            result: "[]".to_owned(),
        }
    }

    /// Returns the line, without its end.
    #[must_use]
    pub fn line(&self) -> String {
        let (success, info) = (self.success, text(&self.info));
        let result = &self.result;
        format!("{{\"success\":{success},\"info\":{info},\"result\":{result}}}")
    }
}

/// Returns a string in JSON.
pub(super) fn text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c < ' ' || c == '\u{7f}' => {
                write!(quoted, "\\u{:04x}", u32::from(c)).expect("a string takes all of it");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a list in JSON of what is JSON already.
pub(super) fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    format!("[{}]", items.join(","))
}

/// Returns a list of strings in JSON.
pub(super) fn texts<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    list(items.into_iter().map(|item| text(item.as_ref())))
}
