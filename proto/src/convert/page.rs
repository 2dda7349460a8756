//! Page sizes and tokens of lists.
//!
//! A token holds the key after which to go on, so that a page is right whatever was added or
//! removed before it. That of a filtered list holds its filter too, as a hash: with another filter the
//! pages would not be parts of one list.

use super::field::{ADDRESS_MAX, Invalid};

/// How many entries a page has by default.
pub const SIZE_DEFAULT: usize = 100;
/// How many entries a page has at most.
pub const SIZE_MAX: usize = 1000;

const PREFIX: &str = "after:";
const FILTER_PREFIX: &str = "filter-";

/// Which part of a list is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The greatest number of entries.
    pub size: usize,
    /// The key after which it begins; absent at the beginning of the list.
    pub after: Option<String>,
    /// What the tokens of the list begin with.
    prefix: String,
}

impl Page {
    /// Reads a request's `page_size` and `page_token`.
    ///
    /// # Errors
    ///
    /// When the size is negative or the token not one of [`Self::cut`].
    pub fn new(page_size: i32, page_token: &str) -> Result<Self, Invalid> {
        Self::filtered(page_size, page_token, "")
    }

    /// As [`Self::new`], of a list with a filter, which may be empty.
    ///
    /// # Errors
    ///
    /// Also when the token is that of another filter.
    pub fn filtered(page_size: i32, page_token: &str, filter: &str) -> Result<Self, Invalid> {
        let prefix = prefix(filter);
        let size = usize::try_from(page_size)
            .map_err(|_| Invalid::new("page_size", "must not be negative"))?;
        let after = match page_token.strip_prefix(&prefix) {
            Some(key) if page_token.len() <= ADDRESS_MAX => Some(key.to_owned()),
            None if page_token.is_empty() => None,
            Some(_) | None => return Err(Invalid::new("page_token", rule_broken_by(page_token))),
        };
        Ok(Self {
            size: if size == 0 {
                SIZE_DEFAULT
            } else {
                size.min(SIZE_MAX)
            },
            after,
            prefix,
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
        let next = page.last().filter(|_| more);
        let next = next.map(|last| format!("{}{}", self.prefix, key(last)));
        (page, next.unwrap_or_default())
    }
}

/// Returns what the tokens of a list with this filter begin with.
fn prefix(filter: &str) -> String {
    if filter.is_empty() {
        return PREFIX.to_owned();
    }
    // FNV-1a: the same in every build, which one request after the other may reach. It guards against
    // mistakes only: a client that forges a token gets what it could have requested.
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = filter.bytes().fold(0xcbf2_9ce4_8422_2325, add);
    format!("{FILTER_PREFIX}{hash:016x}:{PREFIX}")
}

/// Returns the rule that a token breaks.
fn rule_broken_by(page_token: &str) -> &'static str {
    let mut prefixes = [PREFIX, FILTER_PREFIX].into_iter();
    let is_ours = prefixes.any(|prefix| page_token.starts_with(prefix));
    match is_ours && page_token.len() <= ADDRESS_MAX {
        true => "belongs to a list with another filter: repeat the filter of its first page",
        false => "must be empty or the next_page_token of an answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the token of a list without a filter that goes on after `key`.
    fn token(key: &str) -> String {
        format!("{PREFIX}{key}")
    }

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
    fn tokens_belong_to_a_filter() {
        let first = Page::filtered(1, "", "state = ACTIVE").unwrap();
        let (_, next) = first.cut(["a", "b"], |key| (*key).to_owned());
        let with = |filter| Page::filtered(1, &next, filter);
        assert_eq!(with("state = ACTIVE").unwrap().after.as_deref(), Some("a"));
        for other in ["", "state = ERROR"] {
            let refused = with(other).unwrap_err();
            assert_eq!(refused.path, "page_token");
            assert!(refused.rule.contains("another filter"), "{refused}");
        }
        assert!(Page::filtered(1, &token("a"), "state = ACTIVE").is_err());
        assert!(Page::filtered(1, "filter-:after:a", "state = ACTIVE").is_err());
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
