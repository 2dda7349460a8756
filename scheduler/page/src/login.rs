//! The views of a login by a link that is used once, and of its end.

use maud::html;

use crate::frame::document;
use crate::text::Shown;

/// Returns the view that a link leads to: a form that uses it, so that a program which looks at links does
/// not.
#[must_use]
pub fn confirm(link: &str, principal: &str) -> String {
    let head = html! {};
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "Log in" }
            p { "This browser gets the rights of " strong { (Shown(principal)) } " for eight hours, or until it \
                 logs out." }
            form class="action" method="post" action="/login" {
                input type="hidden" name="token" value=(link);
                p { button type="submit" { "Log in" } }
            }
        }
    };
    document("Log in", None, &head, &body)
}

/// Returns the view of those who are not logged in.
#[must_use]
pub fn explain(why: &str) -> String {
    let head = html! {};
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "Not logged in" }
            p { (why) }
            p { "On a machine with an operator’s certificate, run " code { "berth web login" }
                ", and open the link that it prints in this browser within 60 seconds." }
        }
    };
    document("Not logged in", None, &head, &body)
}
