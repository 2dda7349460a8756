//! What a person can have done from the page.
//!
//! Not here: the view that confirms an action ([`crate::confirm`]), and who carries it out: the server.
//!
//! Invariant: an action is for callers that may call its method of the API: the table of roles is the same.

use crate::form::Form;
use crate::text::encoded;

/// An action, with the name of what it is done to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A host takes no new VMs from then on.
    Cordon(String),
    /// A host takes VMs again.
    Uncordon(String),
    /// All VMs of a host are moved to other hosts.
    Drain(String),
    /// A VM is moved to another host while it runs.
    Migrate(String),
    /// An operation goes no further, and is undone.
    CancelOperation(String),
    /// A live migration is given up, and the VM stays where it is.
    AbortMigration(String),
}

/// What the form of an action was sent with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// The proof that the form is of this member, for the caller.
    pub token: String,
    /// Identifies the request: a form that is sent twice is carried out once.
    pub request_id: String,
    /// The host that a VM is to be moved to; one is chosen if it is empty.
    pub host: String,
    /// Whether VMs that cannot be moved while they run are stopped for it.
    pub cold: bool,
}

impl Submission {
    /// Reads the body of a form; nothing if it is too long or not UTF-8.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let form = Form::parse(std::str::from_utf8(body).ok()?)?;
        let text = |key| form.get(key).unwrap_or_default().to_owned();
        Some(Self {
            token: text("token"),
            request_id: text("request_id"),
            host: text("host"),
            cold: form.get("cold").is_some(),
        })
    }
}

impl Action {
    /// Returns the action of a path's collection, name and verb.
    #[must_use]
    pub(crate) fn parse(collection: &str, name: String, verb: &str) -> Option<Self> {
        match (collection, verb) {
            ("hosts", "cordon") => Some(Self::Cordon(name)),
            ("hosts", "uncordon") => Some(Self::Uncordon(name)),
            ("hosts", "drain") => Some(Self::Drain(name)),
            ("vms", "migrate") => Some(Self::Migrate(name)),
            ("operations", "cancel") => Some(Self::CancelOperation(name)),
            ("migrations", "abort") => Some(Self::AbortMigration(name)),
            _ => None,
        }
    }

    fn parts(&self) -> (&'static str, &str, &'static str) {
        match self {
            Self::Cordon(name) => ("hosts", name, "cordon"),
            Self::Uncordon(name) => ("hosts", name, "uncordon"),
            Self::Drain(name) => ("hosts", name, "drain"),
            Self::Migrate(name) => ("vms", name, "migrate"),
            Self::CancelOperation(name) => ("operations", name, "cancel"),
            Self::AbortMigration(name) => ("migrations", name, "abort"),
        }
    }

    /// Returns the path of the view that confirms it, where its form is sent to, too.
    #[must_use]
    pub fn path(&self) -> String {
        let (collection, name, verb) = self.parts();
        format!("/{collection}/{}/{verb}", encoded(name))
    }

    /// Returns the name of what it is done to, as `hosts/h1`.
    #[must_use]
    pub fn resource(&self) -> String {
        let (collection, name, _) = self.parts();
        format!("{collection}/{name}")
    }

    /// Returns the method of the API that does it.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Cordon(_) => "berth.host.v1.HostService/CordonHost",
            Self::Uncordon(_) => "berth.host.v1.HostService/UncordonHost",
            Self::Drain(_) => "berth.conductor.v1.ConductorService/DrainHost",
            Self::Migrate(_) => "berth.conductor.v1.ConductorService/MigrateVm",
            Self::CancelOperation(_) => "berth.operation.v1.OperationService/CancelOperation",
            Self::AbortMigration(_) => "berth.conductor.v1.ConductorService/AbortMigration",
        }
    }

    /// Returns what it is called, as on its button.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self {
            Self::Cordon(_) => "Cordon",
            Self::Uncordon(_) => "Uncordon",
            Self::Drain(_) => "Drain",
            Self::Migrate(_) => "Migrate",
            Self::CancelOperation(_) => "Cancel",
            Self::AbortMigration(_) => "Abort",
        }
    }

    /// Returns what it means, for the person who confirms it.
    pub(crate) fn meaning(&self) -> &'static str {
        match self {
            Self::Cordon(_) => {
                "The host takes no new VMs from then on. Those that run there stay and run on."
            }
            Self::Uncordon(_) => "The host takes new VMs again.",
            Self::Drain(_) => {
                "The host takes no new VMs from then on, and its VMs are moved to other hosts, four at a time. \
                 It stays cordoned when the drain has ended."
            }
            Self::Migrate(_) => {
                "The VM is moved to another host while it runs. The destination is claimed before the transfer \
                 begins; if the move fails, the VM stays where it is."
            }
            Self::CancelOperation(_) => {
                "The operation goes no further, and what it has done is undone, unless it is too far for that."
            }
            Self::AbortMigration(_) => {
                "The transfer ends, and the VM runs on where it is, unless the guest runs on the destination \
                 already."
            }
        }
    }
}

/// Returns every action on what has this name.
#[must_use]
pub fn all(name: &str) -> [Action; 6] {
    let name = || name.to_owned();
    [
        Action::Cordon(name()),
        Action::Uncordon(name()),
        Action::Drain(name()),
        Action::Migrate(name()),
        Action::CancelOperation(name()),
        Action::AbortMigration(name()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Route;

    /// Goal: the path of an action leads to it, whatever its name is.
    #[test]
    fn paths_lead_to_their_actions() {
        for name in ["h1", "a b/c", "ä%2f", "<b>"] {
            for action in all(name) {
                let route = Route::parse(&action.path(), None);
                assert_eq!(route, Some(Route::Action(action)));
            }
        }
    }

    #[test]
    fn forms_are_read() {
        let read = Submission::read(b"token=t&request_id=r&host=h%31&cold=on&more=1");
        let expected = Submission {
            token: "t".into(),
            request_id: "r".into(),
            host: "h1".into(),
            cold: true,
        };
        assert_eq!(read, Some(expected));
        assert_eq!(Submission::read(b""), Some(Submission::default()));
        assert_eq!(Submission::read(b"\xff"), None);
        assert_eq!(Submission::read(&[b'a'; 5000]), None);
    }
}
