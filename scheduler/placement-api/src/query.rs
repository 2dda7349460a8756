//! The query of a request's URL: pairs in their order, keys repeated at will.

use super::fault::Fault;

/// The parameters of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query of a URL.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, Fault> {
        let items = text.unwrap_or_default().split('&');
        let pairs = items.filter(|item| !item.is_empty()).map(|item| {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            Ok((decode(key)?, decode(value)?))
        });
        Ok(Self(pairs.collect::<Result<_, Fault>>()?))
    }

    /// Returns all pairs.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns the values of a key, in their order.
    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        let own = self.0.iter().filter(move |(other, _)| other == key);
        own.map(|(_, value)| &**value)
    }

    /// Returns the value of a key; the last one counts.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let own = self.0.iter().rfind(|(other, _)| other == key);
        own.map(|(_, value)| &**value)
    }
}

/// Undoes `+` and `%xx`.
fn decode(text: &str) -> Result<String, Fault> {
    let spaced = text.replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&spaced).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| {
        Fault::bad_request("Invalid query string parameters: a parameter is not UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_be_repeated_and_the_last_value_counts() {
        let query = Query::parse(Some("a=1&b=%e2%98%83+x&a=2&c&&d=e=f")).unwrap();
        assert_eq!(query.get("a"), Some("2"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.get("b"), Some("☃ x"));
        assert_eq!((query.get("c"), query.get("d")), (Some(""), Some("e=f")));
        assert_eq!(query.get("e"), None);
        assert!(Query::parse(Some("a=%ff")).is_err());
    }
}
