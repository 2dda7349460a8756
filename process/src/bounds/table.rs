//! The table: how much of each resource of a server one caller may hold. `docs/limits.md` shows it,
//! and a test holds it against the document.
//!
//! Invariant: one caller never holds all of a resource, and what serves the cluster itself is never
//! refused because of users: readers together hold at most half, users together three quarters.

use std::time::Duration;

use berth_tls::Role;

/// What a server has a limited amount of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Open streams of one connection; further requests wait at the client.
    Streams,
    /// Open connections.
    Connections,
    /// Requests in progress: until the last byte of the response is sent.
    Requests,
    /// Requests that last: watches, and what waits for an operation.
    Watches,
    /// Plans of the whole cluster, which take a processor for seconds.
    Plans,
    /// Searches of hosts and devices.
    Searches,
    /// Bytes of messages that have not arrived completely.
    BodyBytes,
}

impl Resource {
    /// Every resource, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Streams,
        Self::Connections,
        Self::Requests,
        Self::Watches,
        Self::Plans,
        Self::Searches,
        Self::BodyBytes,
    ];

    /// Returns its name, in refusals and in the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Streams => "streams of a connection",
            Self::Connections => "connections",
            Self::Requests => "requests",
            Self::Watches => "watches",
            Self::Plans => "plans",
            Self::Searches => "searches",
            Self::BodyBytes => "bytes of unfinished bodies",
        }
    }

    /// Returns the reason of the refusal of more than there may be.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Streams | Self::Requests => "TOO_MANY_REQUESTS",
            Self::Connections => "TOO_MANY_CONNECTIONS",
            Self::Watches => "TOO_MANY_WATCHES",
            Self::Plans => "PLANNER_BUSY",
            Self::Searches => "TOO_MANY_SEARCHES",
            Self::BodyBytes => "TOO_MANY_BODY_BYTES",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// What a caller is to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A certificate of this role.
    Role(Role),
    /// An address of a server without certificates.
    Address,
    /// A client of a socket of this machine, whose folder says which users may connect.
    Local,
}

impl Class {
    /// Every class, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Role(Role::Scheduler),
        Self::Role(Role::Conductor),
        Self::Role(Role::Agent),
        Self::Role(Role::CsiController),
        Self::Role(Role::Operator),
        Self::Role(Role::Reader),
        Self::Address,
        Self::Local,
    ];

    /// Returns its name in the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role(role) => role.as_str(),
            Self::Address => "address",
            Self::Local => "local socket",
        }
    }

    /// Returns those that it shares with.
    #[must_use]
    pub fn tier(self) -> Tier {
        match self {
            Self::Role(Role::Scheduler | Role::Conductor | Role::Agent | Role::CsiController)
            | Self::Address
            | Self::Local => Tier::Cluster,
            Self::Role(Role::Operator) => Tier::Users,
            Self::Role(Role::Reader) => Tier::Readers,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Role(Role::Scheduler) => 0,
            Self::Role(Role::Conductor) => 1,
            Self::Role(Role::Agent) => 2,
            Self::Role(Role::CsiController) => 3,
            Self::Role(Role::Operator) => 4,
            Self::Role(Role::Reader) => 5,
            Self::Address => 6,
            Self::Local => 7,
        }
    }
}

/// Callers that share a part of a total. Each holds what those after it hold too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// All callers. Without certificates there are no others.
    Cluster,
    /// Operators and readers: a quarter is reserved for the cluster.
    Users,
    /// Readers: half is reserved for others.
    Readers,
}

impl Tier {
    /// Every tier.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Users, Self::Readers];

    /// Returns the part of a total that its callers may hold together, at least 1.
    #[must_use]
    pub fn share(self, total: u64) -> u64 {
        match self {
            Self::Cluster => total,
            Self::Users => total - total / 4,
            Self::Readers => total - total / 2,
        }
    }

    /// Returns its name in refusals.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "all callers",
            Self::Users => "operators and readers",
            Self::Readers => "readers",
        }
    }
}

/// How much one caller may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Each {
    /// So much, but at most half of what its tier may hold.
    Of(u64),
    /// Half of the total: certificates would tell programs on one address apart.
    Half,
    /// All that its tier may hold.
    Share,
}

use Each::{Half, Of, Share};

/// One resource: its total, and how much one caller of each class may hold.
struct Row {
    resource: Resource,
    /// What the total is, for people.
    total: &'static str,
    each: [Each; 8],
}

const MIB: u64 = 1 << 20;

/// In the order of [`Resource`]; the columns in the order of [`Class`].
const TABLE: [Row; 7] = [
    Row {
        resource: Resource::Streams,
        total: "1,024; in a scheduler `requests_per_connection_max`",
        each: [
            Share,
            Share,
            Of(256),
            Of(256),
            Of(512),
            Of(128),
            Share,
            Share,
        ],
    },
    Row {
        resource: Resource::Connections,
        total: "three eighths of the limit of open files, at most 32,768",
        each: [
            Of(256),
            Of(256),
            Of(32),
            Of(64),
            Of(256),
            Of(32),
            Half,
            Share,
        ],
    },
    Row {
        resource: Resource::Requests,
        total: "16,384",
        each: [
            Of(8192),
            Of(4096),
            Of(512),
            Of(512),
            Of(2048),
            Of(256),
            Half,
            Share,
        ],
    },
    Row {
        resource: Resource::Watches,
        total: "1,024; in a scheduler `watches_max`",
        each: [
            Of(256),
            Of(512),
            Of(16),
            Of(64),
            Of(256),
            Of(64),
            Half,
            Share,
        ],
    },
    Row {
        resource: Resource::Plans,
        total: "4",
        each: [Of(1), Of(1), Of(1), Of(1), Of(2), Of(1), Half, Share],
    },
    Row {
        resource: Resource::Searches,
        total: "512",
        each: [Of(128), Of(128), Of(4), Of(64), Of(128), Of(4), Half, Share],
    },
    Row {
        resource: Resource::BodyBytes,
        total: "256 MiB, or 16 of the longest messages if that is more",
        each: [
            Share,
            Of(64 * MIB),
            Of(16 * MIB),
            Of(16 * MIB),
            Of(64 * MIB),
            Of(8 * MIB),
            Half,
            Share,
        ],
    },
];

/// How long a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Until it has sent the preface of HTTP/2.
    pub preface: Duration,
    /// Until a body with one message is complete.
    pub body: Duration,
    /// Between requests, where it is no part of the cluster.
    pub idle: Duration,
    /// To close a connection that is to end, before the server closes it.
    pub grace: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            preface: Duration::from_secs(5),
            body: Duration::from_secs(20),
            idle: Duration::from_secs(600),
            grace: Duration::from_secs(5),
        }
    }
}

/// What one server has of each resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open streams of a connection.
    pub streams: u32,
    /// Open connections.
    pub connections: u64,
    /// Requests in progress.
    pub requests: u64,
    /// Requests that last.
    pub watches: u64,
    /// Plans.
    pub plans: u64,
    /// Searches.
    pub searches: u64,
    /// The longest message.
    pub message_bytes: u64,
    /// Bytes of unfinished bodies.
    pub body_bytes: u64,
    /// How long clients may take.
    pub times: Times,
}

impl Limits {
    /// Returns those of a server with so many connections.
    #[must_use]
    pub fn new(connections: u64) -> Self {
        Self {
            streams: 1024,
            connections,
            requests: 16_384,
            watches: 1024,
            plans: 4,
            searches: 512,
            message_bytes: 0,
            body_bytes: 0,
            times: Times::default(),
        }
        .with_messages(4 * MIB)
    }

    /// As these, with another longest message.
    #[must_use]
    pub fn with_messages(self, message_bytes: u64) -> Self {
        Self {
            message_bytes,
            body_bytes: (256 * MIB).max(16 * message_bytes),
            ..self
        }
    }

    /// Returns how long a connection without requests stays open; for ever where it is of the cluster
    /// itself.
    #[must_use]
    pub fn idle(&self, class: Class) -> Option<Duration> {
        match class {
            Class::Role(Role::Operator | Role::Reader) | Class::Address => Some(self.times.idle),
            Class::Role(Role::Scheduler | Role::Conductor | Role::Agent | Role::CsiController)
            | Class::Local => None,
        }
    }

    /// Returns the total of a resource.
    #[must_use]
    pub fn of(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Streams => self.streams.into(),
            Resource::Connections => self.connections,
            Resource::Requests => self.requests,
            Resource::Watches => self.watches,
            Resource::Plans => self.plans,
            Resource::Searches => self.searches,
            Resource::BodyBytes => self.body_bytes,
        }
    }

    /// Returns how much of a resource one caller of a class may hold, at least 1.
    #[must_use]
    pub fn each(&self, class: Class, resource: Resource) -> u64 {
        let total = self.of(resource);
        let share = class.tier().share(total);
        let each = match TABLE[resource.index()].each[class.index()] {
            Of(each) if resource == Resource::Streams => each.min(share),
            // Where the total is small, another one of its tier gets some too.
            Of(each) => each.min(share / 2),
            Half => total / 2,
            Share => share,
        };
        // Else no configuration could let it send its longest message.
        let least = match resource {
            Resource::BodyBytes => self.message_bytes.min(share),
            Resource::Streams
            | Resource::Connections
            | Resource::Requests
            | Resource::Watches
            | Resource::Plans
            | Resource::Searches => 1,
        };
        each.max(least)
    }
}

/// Returns the table as `docs/limits.md` shows it.
#[must_use]
pub fn markdown() -> String {
    let mut text = "| what | total |".to_owned();
    for class in Class::ALL {
        text.push_str(&format!(" {} |", class.as_str()));
    }
    text.push_str(&format!("\n|---|---|{}\n", "---|".repeat(Class::ALL.len())));
    for row in &TABLE {
        text.push_str(&format!("| {} | {} |", row.resource.as_str(), row.total));
        for each in row.each {
            let each = match each {
                Of(each) if row.resource == Resource::BodyBytes => format!("{} MiB", each / MIB),
                Of(each) => each.to_string(),
                Half => "half".to_owned(),
                Share => "all".to_owned(),
            };
            text.push_str(&format!(" {each} |"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_are_in_order() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.resource.index(), index);
            assert_eq!(Resource::ALL[index], row.resource);
        }
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), index);
        }
    }

    /// Goal: in every server, however small its limits, each caller can do something, one reader holds
    /// no more than all readers may, and all readers leave something to others.
    #[test]
    fn nothing_is_taken_by_one_alone() {
        for connections in [16, 100, 384, 32_768] {
            let limits = Limits::new(connections);
            for resource in Resource::ALL {
                let total = limits.of(resource);
                for class in Class::ALL {
                    let each = limits.each(class, resource);
                    let share = class.tier().share(total);
                    let what = format!("{resource:?} {class:?}: {each} of {share} of {total}");
                    assert!((1..=share).contains(&each), "{what}");
                    let is_open = matches!(
                        class,
                        Class::Address | Class::Role(Role::Agent | Role::Operator | Role::Reader)
                    );
                    // Streams are of one connection each.
                    if is_open && resource != Resource::Streams {
                        assert!(each < total, "{what}");
                    }
                }
                assert!(Tier::Readers.share(total) < Tier::Users.share(total));
                assert!(Tier::Users.share(total) < total);
            }
        }
    }
}
