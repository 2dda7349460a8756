//! Views of every kind, made of messages that are filled by their descriptors: so no field is forgotten, and
//! one that is added later is filled too.

use std::sync::LazyLock;
use std::time::Duration;

use berth_page::Measured;
use berth_page::action::{self, Action};
use berth_page::cluster::{Amount, Cluster, Counts, Failover};
use berth_page::confirm::{Seal, Subject};
use berth_page::console::Console;
use berth_page::frame::LoggedIn;
use berth_page::host::HostView;
use berth_page::hosts::{Grouping, HostRow, HostState, Share};
use berth_page::route::{AuditQuery, HostsQuery, Topic, VmsQuery, WhyNotQuery};
use berth_page::vm::VmView;
use berth_page::why_not::Outcome;
use berth_page::{Frame, Source};
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, MessageDescriptor, Value};

/// How deep messages are filled; those that hold themselves would have no end.
const DEPTH_MAX: usize = 9;
/// The token of the forms that change something.
pub(crate) const TOKEN: &str = "0123456789abcdef";
/// How many elements a list has.
const ELEMENTS: usize = 2;

/// What fields are filled with.
pub(crate) struct Filling<'a> {
    /// The text of every string.
    pub(crate) text: &'a str,
    /// Which member of each `oneof`, and which value of each enumeration.
    pub(crate) choice: usize,
}

impl Filling<'_> {
    /// Returns a message in which everything is filled.
    pub(crate) fn message<T: prost::Message + prost::Name + Default>(&self) -> T {
        static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
            DescriptorPool::decode(berth_proto::DESCRIPTOR_SET).expect("valid descriptors")
        });
        let descriptor = POOL.get_message_by_name(&T::full_name());
        let descriptor =
            descriptor.unwrap_or_else(|| panic!("{} is not described", T::full_name()));
        let message = self.fill(&descriptor, 0);
        message.transcode_to().expect("the same message")
    }

    fn fill(&self, descriptor: &MessageDescriptor, depth: usize) -> DynamicMessage {
        let mut message = DynamicMessage::new(descriptor.clone());
        // A moment, whose fields have a range.
        if descriptor.full_name().starts_with("google.protobuf.") || depth >= DEPTH_MAX {
            return message;
        }
        for field in descriptor.fields() {
            let of_choice = field.containing_oneof().is_none_or(|oneof| {
                let chosen = self.choice % oneof.fields().count();
                oneof
                    .fields()
                    .nth(chosen)
                    .is_some_and(|chosen| chosen == field)
            });
            if !of_choice {
                continue;
            }
            let value = if field.is_map() {
                let Kind::Message(entry) = field.kind() else {
                    panic!("{field:?} has no entries");
                };
                // The kinds of another crate.
                #[allow(clippy::wildcard_enum_match_arm)]
                let key = match entry.map_entry_key_field().kind() {
                    Kind::String => MapKey::String(self.text.to_owned()),
                    Kind::Uint32 => MapKey::U32(1),
                    Kind::Uint64 => MapKey::U64(2048),
                    other => panic!("{other:?} is no key yet"),
                };
                let value = self.value(&entry.map_entry_value_field().kind(), depth);
                Value::Map([(key, value)].into())
            } else if field.is_list() {
                Value::List(vec![self.value(&field.kind(), depth); ELEMENTS])
            } else {
                self.value(&field.kind(), depth)
            };
            message.set_field(&field, value);
        }
        message
    }

    fn value(&self, kind: &Kind, depth: usize) -> Value {
        match kind {
            Kind::String => Value::String(self.text.to_owned()),
            Kind::Bytes => Value::Bytes(self.text.as_bytes().to_vec().into()),
            Kind::Bool => Value::Bool(self.choice.is_multiple_of(2)),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(7),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(70_000),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(7),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(70_000),
            Kind::Float => Value::F32(1.5),
            Kind::Double => Value::F64(1.5),
            Kind::Enum(values) => {
                let count = values.values().count();
                let value = values.values().nth(self.choice % count);
                Value::EnumNumber(value.map_or(0, |value| value.number()))
            }
            Kind::Message(of) => Value::Message(self.fill(of, depth + 1)),
        }
    }

    fn text(&self) -> String {
        self.text.to_owned()
    }

    /// Returns the frame of a view.
    pub(crate) fn frame(&self) -> Frame {
        let sources = [
            Source::Leader,
            Source::Own {
                age: Some(Duration::from_millis(1500)),
                leader: Some(2),
            },
            Source::Own {
                age: None,
                leader: None,
            },
        ];
        Frame {
            cluster_id: self.text(),
            member: 1,
            revision: 812,
            source: sources[self.choice % sources.len()],
            may_validate: self.choice.is_multiple_of(2),
            may_change: !self.choice.is_multiple_of(3),
            logged_in: self.choice.is_multiple_of(2).then(|| LoggedIn {
                principal: self.text(),
                token: TOKEN.to_owned(),
            }),
            topic: Some(Topic::Vm(self.text())),
        }
    }

    fn row(&self, state: HostState) -> HostRow {
        HostRow {
            name: self.text(),
            state,
            zone: self.text(),
            aggregates: vec![self.text(); 2],
            pcpu: Share {
                used: 3,
                capacity: 8,
            },
            vcpu: Share::default(),
            memory: Share {
                used: 900,
                capacity: 800,
            },
            claims: 4,
            violates: true,
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster {
            status: self.message(),
            services: vec![self.message()],
            operations: vec![self.message()],
            has_more_operations: true,
            migrations: vec![self.message()],
            counts: Counts {
                hosts: vec![("up", 3), ("down", 1)],
                vms: vec![("active", 12_345)],
                migrations: vec![("unsettled", 1)],
                troubled_vms: 1,
                unknown_guests: 2,
                failed_erasures: 3,
                amounts: vec![Amount {
                    class: self.text(),
                    used: 5,
                    capacity: 10,
                }],
                violations: vec![(self.text(), self.message())],
                violation_count: 1,
            },
            failover: Some(Failover {
                survived: 2,
                not_survived: 1,
                unknown: 1,
                age_ms: 61_000,
            }),
        }
    }

    /// Returns the views that confirm actions.
    fn confirmations(&self) -> Vec<(&'static str, String)> {
        let subject = |action: &Action| match action {
            Action::Cordon(_) | Action::Uncordon(_) => Subject::Host(Box::new(self.message())),
            Action::Drain(_) => Subject::Drained(Box::new(self.message()), self.message()),
            Action::Migrate(_) => Subject::Vm(Box::new(self.message())),
            Action::CancelOperation(_) => Subject::Operation(Box::new(self.message())),
            Action::AbortMigration(_) => Subject::Migration(Box::new(self.message())),
        };
        let seal = Seal {
            token: TOKEN.to_owned(),
            request_id: "0193".to_owned(),
        };
        let frame = self.frame();
        let render = |action: Action| {
            let html = berth_page::confirm::render(&frame, &action, &subject(&action), &seal);
            (action.title(), html)
        };
        action::all(self.text).into_iter().map(render).collect()
    }

    fn vm(&self, measured: Measured) -> VmView {
        VmView {
            vm: self.message(),
            operations: vec![self.message()],
            migrations: vec![self.message()],
            measured: Some(measured),
        }
    }

    /// Returns what a guest wrote: a line, and the text.
    fn console(&self) -> Console {
        let tail = format!("booted\n{}", self.text()).into_bytes();
        Console {
            read: 2 * tail.len() as u64,
            has_more: true,
            tail,
        }
    }

    /// Returns the views that offer actions, in a frame.
    pub(crate) fn acted_on(&self, frame: &Frame) -> [(&'static str, String); 3] {
        let host = HostView {
            host: self.message(),
            volumes: Vec::new(),
        };
        let vm = self.vm(Ok(Box::new(self.message())));
        let cluster = self.cluster();
        [
            ("host", berth_page::host::render(frame, &host)),
            ("vm", berth_page::vm::render(frame, &vm)),
            ("cluster", berth_page::cluster::render(frame, &cluster)),
        ]
    }

    /// Returns every view by its name.
    pub(crate) fn views(&self) -> Vec<(&'static str, String)> {
        let mut views = self.reads();
        views.extend(self.confirmations());
        views
    }

    fn reads(&self) -> Vec<(&'static str, String)> {
        let frame = self.frame();
        let query = WhyNotQuery {
            flavor: self.text(),
            host: self.text(),
        };
        let hosts_query = HostsQuery {
            filter: String::new(),
            grouping: [Grouping::State, Grouping::Zone, Grouping::Aggregate][self.choice % 3],
            page: 1,
        };
        let filtered = HostsQuery {
            filter: self.text(),
            ..hosts_query.clone()
        };
        let states = [
            HostState::Up,
            HostState::Cordoned,
            HostState::Unreported,
            HostState::ShapeRefused,
            HostState::Down,
            HostState::Fenced,
        ];
        let rows = states.map(|state| self.row(state));
        let vms_query = VmsQuery {
            after: self.text(),
            host: self.text(),
            project: self.text(),
        };
        let audit_query = AuditQuery {
            after: self.text(),
            vm: self.text(),
            host: self.text(),
            principal: self.text(),
        };
        let host = HostView {
            host: self.message(),
            volumes: vec![self.message()],
        };
        let vm = self.vm(Ok(Box::new(self.message())));
        let flavors = [self.message()];
        let outcome = |outcome| berth_page::why_not::render(&frame, &query, &flavors, &outcome);
        vec![
            (
                "cluster",
                berth_page::cluster::render(&frame, &self.cluster()),
            ),
            (
                "failover",
                berth_page::failover::render(&frame, &self.message()),
            ),
            (
                "hosts",
                berth_page::hosts::render(&frame, &hosts_query, &rows),
            ),
            (
                "filtered",
                berth_page::hosts::render(&frame, &filtered, &rows),
            ),
            ("host", berth_page::host::render(&frame, &host)),
            (
                "vms",
                berth_page::vms::render(&frame, &vms_query, &self.message()),
            ),
            ("vm", berth_page::vm::render(&frame, &vm)),
            (
                "unmeasured",
                berth_page::vm::render(&frame, &self.vm(Err(self.text()))),
            ),
            (
                "console",
                berth_page::console::render(&frame, self.text, &self.console()),
            ),
            (
                "history",
                berth_page::history::render(&frame, self.text, &[self.message()], 2, 9),
            ),
            ("form", outcome(Outcome::None)),
            ("fits", outcome(Outcome::Fits(Box::new(self.message())))),
            (
                "refused",
                outcome(Outcome::Refused(Box::new(self.message()))),
            ),
            (
                "balance",
                berth_page::balance::render(&frame, &self.message()),
            ),
            (
                "audit",
                berth_page::audit::render(&frame, &audit_query, &self.message()),
            ),
            ("login", berth_page::login::confirm(TOKEN, self.text)),
            ("no login", berth_page::login::explain("The link was used.")),
            (
                "failure",
                berth_page::failure::render("It failed", self.text, Some(self.text)),
            ),
        ]
    }
}
