//! Why there is no view.

use maud::html;

use crate::frame::document;
use crate::text::Wrapped;

/// Returns the document of a failure: what failed and why, and what to do.
#[must_use]
pub fn render(what: &str, why: &str, hint: Option<&str>) -> String {
    let head = html! {};
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { (what) }
            p class="bad" { (Wrapped(why)) }
            @if let Some(hint) = hint {
                p { strong { "Hint: " } (Wrapped(hint)) }
            }
            p { a href="/" { "The cluster" } }
        }
    };
    document(what, None, &head, &body)
}
