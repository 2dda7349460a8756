//! Options of lists that select what they show.

use clap::Args;

/// Which entries of a list are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Selection {
    /// Only the entries that meet this expression over the fields of the API (docs/filters.md)
    // One may begin with a negation.
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    pub filter: Option<String>,
    /// Maximum number of entries; of operations and migrations, the latest ones
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
}

impl Selection {
    /// Returns what is said of a list without entries: `none`, where not the filter left them out.
    pub(crate) fn none(&self, none: &'static str) -> &'static str {
        match self.filter.as_deref() {
            None | Some("") => none,
            Some(_) => "nothing meets the filter",
        }
    }
}
