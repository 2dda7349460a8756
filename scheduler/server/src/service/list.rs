//! Pages of the state's tables, and of what filters select of them.

use std::ops::Bound;
use std::sync::Arc;

use berth_proto::convert::Invalid;
use berth_proto::convert::page::Page;
use berth_proto::filter::Filter;
use imbl::OrdMap;
use tonic::Status;

use super::context::Context;
use super::refusal;

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
    let after = after(page, parse)?.map_or(Bound::Unbounded, Bound::Excluded);
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

/// Returns what `work` reads of a list with a filter; if there is one, on a thread where it may take its
/// time, since it reads until its page is full.
pub(crate) async fn filtered<T: Send + 'static>(
    context: &Context,
    filter: Filter,
    work: impl FnOnce(&Filter) -> Result<T, Invalid> + Send + 'static,
) -> Result<T, Status> {
    if filter.is_empty() {
        return Ok(work(&filter)?);
    }
    let turn = context.filter_turn().await?;
    let worked = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work(&filter)
    });
    match worked.await {
        Ok(read) => Ok(read?),
        Err(end) if end.is_panic() => std::panic::resume_unwind(end.into_panic()),
        // The member is stopping.
        Err(_) => Err(refusal::stopping()),
    }
}

/// Returns the key after which a page begins, if it is not the first.
pub(crate) fn after<K>(
    page: &Page,
    parse: impl Fn(&str) -> Option<K>,
) -> Result<Option<K>, Invalid> {
    let read = |text: &String| {
        parse(text).ok_or_else(|| {
            Invalid::new(
                "page_token",
                "must be empty or the next_page_token of an answer",
            )
        })
    };
    page.after.as_ref().map(read).transpose()
}
