//! What a list selects: the filter that the scheduler evaluates, and how many entries are read.
//!
//! The filter is read here before anything is called, so that a fault of it is wrong usage, and evaluated
//! again on each response: a scheduler that is older than filters returns every entry.

use berth_proto::filter::Filter;
use prost::{Message, Name};

use crate::arguments::Selection;
use crate::usage::Usage;

/// The most entries that a page has.
const PAGE_MAX: u32 = 1000;

/// A selection of a list with messages of one type.
pub(crate) struct Selector {
    /// As it is sent.
    pub(crate) text: String,
    filter: Filter,
    limit: Option<u32>,
}

impl Selector {
    /// Reads a selection of messages of type `M`.
    ///
    /// # Errors
    ///
    /// The filter is none of such messages.
    pub(crate) fn new<M: Name>(selection: &Selection) -> Result<Self, Usage> {
        let text = selection.filter.clone().unwrap_or_default();
        let filter = Filter::new::<M>(&text);
        let filter = filter.map_err(|invalid| Usage(format!("--filter: {}", invalid.rule)))?;
        let limit = selection.limit;
        Ok(Self {
            text,
            filter,
            limit,
        })
    }

    /// As [`Self::new`], without a limit: for [`keep_latest`] the whole of a list is read.
    pub(crate) fn of_latest<M: Name>(selection: &Selection) -> Result<Self, Usage> {
        let limit = None;
        Ok(Self {
            limit,
            ..Self::new::<M>(selection)?
        })
    }

    /// Returns the size of the pages to read; 0 is the default one.
    pub(crate) fn page_size(&self) -> i32 {
        let size = self.limit.unwrap_or(0).min(PAGE_MAX);
        i32::try_from(size).unwrap_or(0)
    }

    /// Adds a page to what was read, and returns whether that suffices.
    pub(crate) fn take<M: Message>(&self, all: &mut Vec<M>, mut page: Vec<M>) -> bool {
        page.retain(|message| self.filter.matches(message));
        all.append(&mut page);
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        limit.is_some_and(|limit| {
            all.truncate(limit);
            all.len() == limit
        })
    }
}

/// Keeps the last entries of a list of which the latest stand last.
pub(crate) fn keep_latest<T>(all: &mut Vec<T>, selection: &Selection) {
    let limit = selection
        .limit
        .and_then(|limit| usize::try_from(limit).ok());
    let excess = limit.map_or(0, |limit| all.len().saturating_sub(limit));
    all.drain(..excess);
}
