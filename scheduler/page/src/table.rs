//! Tables, and meters of what is taken.
//!
//! Invariant: every table has a caption, every column a header, and what is wider than the screen scrolls
//! within its own region, which the keyboard reaches.

use maud::{Markup, html};

use crate::text::{percent, plain};

/// How the cells of a column are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// From the left.
    Text(&'static str),
    /// Numbers, from the right.
    Number(&'static str),
}

impl Column {
    fn head(self) -> Markup {
        match self {
            Self::Text(name) => html! { th scope="col" { (name) } },
            Self::Number(name) => html! { th scope="col" class="number" { (name) } },
        }
    }
}

/// Returns a table of rows, which are `tr`.
pub(crate) fn table(caption: &str, columns: &[Column], rows: &[Markup]) -> Markup {
    html! {
        div class="scroll" role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr { @for column in columns { (column.head()) } } }
                tbody { @for row in rows { (row) } }
            }
        }
    }
}

/// Returns a cell of a number.
pub(crate) fn number(content: impl maud::Render) -> Markup {
    html! { td class="number" { (content) } }
}

/// Returns a meter with its figures: what is taken of what there is.
pub(crate) fn meter(label: &str, used: u64, all: u64, figures: &str) -> Markup {
    let percent = percent(used, all);
    let high = if percent > 100 { "over" } else { "within" };
    html! {
        span class="meter" {
            meter class=(high) min="0" max="100" low="80" high="95" optimum="0" value=(percent.min(100))
                aria-label=(plain(label)) { (percent) " %" }
            " " span class="figures" { (figures) }
        }
    }
}

/// Returns names and values.
pub(crate) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl class="facts" {
            @for (name, value) in facts {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}
