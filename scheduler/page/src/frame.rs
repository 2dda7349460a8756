//! What surrounds every view: navigation, and what the state that is shown is worth.
//!
//! Invariant: a view of which the state may be outdated states its revision and its age.

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};

use crate::action::Action;
use crate::assets::Asset;
use crate::route::Topic;
use crate::text::{Shown, duration};

/// Where the state of a view is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This member leads, and a majority has confirmed that.
    Leader,
    /// The member's own state, which may be behind.
    Own {
        /// The time since a leader confirmed it; unknown if none has since the member started.
        age: Option<Duration>,
        /// The leader that it knows.
        leader: Option<u64>,
    },
}

/// Who a browser logged in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// As the audit names it.
    pub principal: String,
    /// The proof that the form which logs out is of this member.
    pub token: String,
}

/// What every view has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The name of the cluster's id.
    pub cluster_id: String,
    /// The member that serves the page.
    pub member: u64,
    /// The revision of the state, from which on changes are followed.
    pub revision: u64,
    /// Where the state is from.
    pub source: Source,
    /// Whether the caller may have a VM placed on trial.
    pub may_validate: bool,
    /// Whether the caller may have actions carried out.
    pub may_change: bool,
    /// Who the caller logged in as, if it did.
    pub logged_in: Option<LoggedIn>,
    /// What changes the view, if it is followed.
    pub topic: Option<Topic>,
}

/// The views of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Cluster,
    Hosts,
    Vms,
    WhyNot,
    Balance,
    Audit,
}

impl Section {
    const ALL: [Self; 6] = [
        Self::Cluster,
        Self::Hosts,
        Self::Vms,
        Self::WhyNot,
        Self::Balance,
        Self::Audit,
    ];

    fn link(self) -> (&'static str, &'static str) {
        match self {
            Self::Cluster => ("/", "Cluster"),
            Self::Hosts => ("/hosts", "Hosts"),
            Self::Vms => ("/vms", "VMs"),
            Self::WhyNot => ("/why-not", "Why not"),
            Self::Balance => ("/balance", "Balance"),
            Self::Audit => ("/audit", "Audit"),
        }
    }
}

/// The parts of a view.
pub(crate) struct View {
    pub(crate) section: Section,
    /// Its title and heading.
    pub(crate) title: String,
    /// What stays as it is when something changes, as a form that is being filled in.
    pub(crate) fixed: Markup,
    /// What is loaded again when something changes.
    pub(crate) live: Markup,
}

impl Frame {
    /// Returns the document of a view.
    pub(crate) fn document(&self, view: &View) -> String {
        let events = self.topic.as_ref().map(|topic| topic.path(self.revision));
        let navigation = html! {
            nav aria-label="Views" {
                ul {
                    @for section in Section::ALL {
                        @if section != Section::WhyNot || self.may_validate {
                            (link(section, view.section == section))
                        }
                    }
                }
            }
        };
        let body = html! {
            main id="main" tabindex="-1" {
                h1 { (Shown(&view.title)) }
                (view.fixed)
                div id="live" { (view.live) }
            }
        };
        let head = html! {
            (navigation)
            div class="state" {
                p id="source" class=(self.tone()) { (self.state()) }
                // The script writes here; without it nothing is followed.
                p id="follow" role="status" {}
            }
            @if let Some(LoggedIn { principal, token }) = &self.logged_in {
                form class="logout" method="post" action="/logout" {
                    "Logged in as " (Shown(principal)) ". "
                    input type="hidden" name="token" value=(token);
                    button type="submit" { "Log out" }
                }
            }
        };
        document(&view.title, events.as_deref(), &head, &body)
    }

    fn tone(&self) -> &'static str {
        match self.source {
            Source::Leader => "good",
            Source::Own {
                leader: Some(_), ..
            } => "note",
            Source::Own { leader: None, .. } => "bad",
        }
    }

    fn state(&self) -> Markup {
        let at = html! { "Revision " span id="revision" { (self.revision) } };
        match self.source {
            Source::Leader => html! {
                (at) " of cluster " (Shown(&self.cluster_id)) ", from the leader, member " (self.member) "."
            },
            Source::Own { age, leader } => html! {
                (at) " of cluster " (Shown(&self.cluster_id)) ", from member " (self.member) "’s own state: "
                @match age {
                    Some(age) => {
                        "a leader confirmed it " (duration(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
                        " before this view was made"
                    }
                    None => "no leader has confirmed it since the member started"
                }
                @match leader {
                    Some(leader) => { "; member " (leader) " leads." }
                    None => "; it knows no leader. Hosts and VMs may be in another state by now."
                }
            },
        }
    }
}

fn link(section: Section, is_current: bool) -> Markup {
    let (path, name) = section.link();
    html! {
        li {
            a href=(path) aria-current=[is_current.then_some("page")] { (name) }
        }
    }
}

/// Returns links to the views that confirm these actions.
pub(crate) fn actions(actions: &[Action]) -> Markup {
    html! {
        p class="actions" {
            @for action in actions { a href=(action.path()) { (action.title()) } " " }
        }
    }
}

/// Returns a whole document.
pub(crate) fn document(title: &str, events: Option<&str>, head: &Markup, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (Shown(title)) " · Berth" }
                link rel="icon" href=(Asset::Icon.path());
                link rel="stylesheet" href=(Asset::Style.path());
                script src=(Asset::Script.path()) defer {}
            }
            body data-events=[events] {
                a class="skip" href="#main" { "Skip to the content" }
                header {
                    p class="brand" { a href="/" { "Berth" } }
                    (head)
                }
                (body)
            }
        }
    }
    .into_string()
}
