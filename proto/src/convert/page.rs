//! Page sizes and tokens of lists.
//!
//! A token holds the key after which to go on, so that a page is right whatever was added or
//! removed before it.

use super::field::{ADDRESS_MAX, Invalid};

/// How many entries a page has by default.
pub const SIZE_DEFAULT: usize = 100;
/// How many entries a page has at most.
pub const SIZE_MAX: usize = 1000;

const PREFIX: &str = "after:";

/// Which part of a list is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The greatest number of entries.
    pub size: usize,
    /// The key after which it begins; absent at the beginning of the list.
    pub after: Option<String>,
}

impl Page {
    /// Reads a request's `page_size` and `page_token`.
    ///
    /// # Errors
    ///
    /// When the size is negative or the token not one of [`token`].
    pub fn new(page_size: i32, page_token: &str) -> Result<Self, Invalid> {
        let size = usize::try_from(page_size)
            .map_err(|_| Invalid::new("page_size", "must not be negative"))?;
        let after = match page_token.strip_prefix(PREFIX) {
            Some(key) if page_token.len() <= ADDRESS_MAX => Some(key.to_owned()),
            None if page_token.is_empty() => None,
            Some(_) | None => {
                let rule = "must be empty or the next_page_token of an answer";
                return Err(Invalid::new("page_token", rule));
            }
        };
        Ok(Self {
            size: if size == 0 {
                SIZE_DEFAULT
            } else {
                size.min(SIZE_MAX)
            },
            after,
        })
    }

    /// Cuts a page out of entries that come in order of their keys and begin after
    /// [`Self::after`]; returns them with the `next_page_token`.
    pub fn cut<T>(
        &self,
        entries: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> String,
    ) -> (Vec<T>, String) {
        let mut entries = entries.into_iter();
        let page: Vec<T> = entries.by_ref().take(self.size).collect();
        let more = entries.next().is_some();
        let next = page.last().filter(|_| more).map(|last| token(&key(last)));
        (page, next.unwrap_or_default())
    }
}

/// Returns the token that goes on after `key`.
#[must_use]
pub fn token(key: &str) -> String {
    format!("{PREFIX}{key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bounded_and_tokens_ours() {
        let size = |n| Page::new(n, "").unwrap().size;
        assert_eq!((size(0), size(7), size(5000)), (100, 7, 1000));
        assert!(Page::new(-1, "").is_err());
        assert!(Page::new(0, "h1").is_err());
        assert_eq!(
            Page::new(0, &token("h1")).unwrap().after.as_deref(),
            Some("h1")
        );
    }

    #[test]
    fn pages_cover_the_list_once() {
        let all: Vec<u32> = (10..20).collect();
        let mut seen = Vec::new();
        let mut next = String::new();
        loop {
            let page = Page::new(3, &next).unwrap();
            let after: u32 = page.after.as_deref().map_or(0, |k| k.parse().unwrap());
            let rest = all.iter().copied().filter(|n| *n > after);
            let (entries, token) = page.cut(rest, u32::to_string);
            seen.extend(entries);
            if token.is_empty() {
                break;
            }
            next = token;
        }
        assert_eq!(seen, all);
    }
}
