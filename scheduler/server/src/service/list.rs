//! Pages of the state's tables.

use std::ops::Bound;
use std::sync::Arc;

use berth_proto::convert::Invalid;
use berth_proto::convert::page::Page;
use imbl::OrdMap;

/// Returns a page of a table with the token of the next, in order of the keys.
pub(crate) fn page<K, V>(
    table: &OrdMap<K, Arc<V>>,
    page: &Page,
    parse: impl Fn(&str) -> Option<K>,
    show: impl Fn(&K) -> String,
    keep: impl Fn(&V) -> bool,
) -> Result<(Vec<Arc<V>>, String), Invalid>
where
    K: Ord + Clone,
{
    let after = match &page.after {
        None => Bound::Unbounded,
        Some(text) => Bound::Excluded(parse(text).ok_or_else(|| {
            Invalid::new(
                "page_token",
                "must be empty or the next_page_token of an answer",
            )
        })?),
    };
    let rest = table
        .range((after, Bound::Unbounded))
        .filter(|(_, value)| keep(value));
    let (entries, next) = page.cut(rest, |(key, _)| show(key));
    Ok((
        entries
            .into_iter()
            .map(|(_, value)| value.clone())
            .collect(),
        next,
    ))
}
