//! Events of a resource, as `kubectl describe` shows them.
//!
//! An event belongs to a change of the phase, or of why it is Failed. Its name is computed from that change,
//! so that an operator which repeats it, or a second one, meets the one that exists, whatever else of the
//! status was written meanwhile.
//!
//! Invariant: a function of its arguments.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::reconcile::FIELD_MANAGER;
use crate::resource::Resource;
use crate::status::{Phase, Status};

/// The namespace of events about objects that are in none.
pub const NAMESPACE: &str = "default";
/// The longest message that the API server accepts, in bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Returns the event of a change of status, if it is worth one.
#[must_use]
pub fn of_change(resource: &Resource, next: &Status, now: &Time) -> Option<Value> {
    let before = &resource.status;
    let (kind, reason) = match next.phase {
        Phase::Failed if (before.phase, &before.reason) != (next.phase, &next.reason) => {
            ("Warning", "Failed")
        }
        Phase::Running if before.phase != Phase::Running => ("Normal", "Running"),
        Phase::Initializing if before.phase == Phase::New => ("Normal", "NewDeployment"),
        Phase::New | Phase::Initializing | Phase::Running | Phase::Failed => return None,
    };
    let since = match before.phase {
        // One fault may follow another one, and the first one again.
        Phase::Failed => None,
        Phase::New | Phase::Initializing | Phase::Running => before.phase_began(),
    };
    let since = since.or(before.last_updated.as_ref());
    Some(event(resource, (kind, reason), &next.reason, (since, now)))
}

fn event(
    resource: &Resource,
    (kind, reason): (&str, &str),
    message: &str,
    (since, now): (Option<&Time>, &Time),
) -> Value {
    let owner = &resource.owner;
    let change = json!([owner.uid, reason, message, resource.generation, since]);
    let digest = Sha256::digest(change.to_string().as_bytes());
    let digest: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{digest}", owner.name), "namespace": NAMESPACE},
        "involvedObject": {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "resourceVersion": resource.resource_version,
        },
        "type": kind,
        "reason": reason,
        "message": shortened(message),
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    })
}

fn shortened(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::resource::Kind;
    use crate::status::{Hosts, Observed, Pods};

    const PHASES: [Phase; 4] = [
        Phase::New,
        Phase::Initializing,
        Phase::Running,
        Phase::Failed,
    ];

    fn status(phase: Phase, reason: &str) -> Status {
        Status {
            phase,
            reason: reason.to_owned(),
            ..Status::default()
        }
    }

    fn resource(status: Status) -> Resource {
        let object = json!({"metadata": {"name": "d.example", "uid": "u", "generation": 1}});
        let mut resource = Resource::parse(Kind::BerthStorage, &object);
        resource.status = status;
        resource
    }

    fn of(before: (Phase, &str), next: (Phase, &str)) -> Option<Value> {
        let now = Time(Timestamp::from_second(9).expect("a time"));
        of_change(
            &resource(status(before.0, before.1)),
            &status(next.0, next.1),
            &now,
        )
    }

    /// Goal: one event for each change that a person has to know, none for others. Method: all changes.
    #[test]
    fn each_change_has_at_most_one_event() {
        for before in PHASES {
            for next in PHASES {
                let event = of((before, "r"), (next, "r"));
                let reason = event.as_ref().map(|event| event["reason"].clone());
                let expected = match (before, next) {
                    (Phase::New, Phase::Initializing) => Some("NewDeployment"),
                    (Phase::New | Phase::Initializing | Phase::Failed, Phase::Running) => {
                        Some("Running")
                    }
                    (Phase::New | Phase::Initializing | Phase::Running, Phase::Failed) => {
                        Some("Failed")
                    }
                    (_, Phase::New)
                    | (Phase::Running, Phase::Running)
                    | (Phase::Failed, Phase::Failed)
                    | (Phase::Initializing | Phase::Running | Phase::Failed, Phase::Initializing) => {
                        None
                    }
                };
                assert_eq!(reason, expected.map(Value::from), "{before:?} to {next:?}");
            }
        }
        let other = of((Phase::Failed, "a"), (Phase::Failed, "b")).expect("another fault");
        assert_eq!(
            (&other["type"], &other["message"]),
            (&json!("Warning"), &json!("b"))
        );
    }

    /// Goal: the same change has the same name, any other change another one.
    #[test]
    fn a_repeated_event_is_the_same() {
        let name = |message| {
            of((Phase::New, ""), (Phase::Failed, message)).expect("an event")["metadata"]["name"]
                .clone()
        };
        assert_eq!(name("a"), name("a"));
        assert_ne!(name("a"), name("b"));
    }

    /// Goal: a deployment that an operator has announced as Running, and not recorded as such, is not
    /// announced again because its successor saw something else first; and each time that it is Running
    /// again is announced. Method: what is written between the two, in each phase.
    #[test]
    fn an_event_belongs_to_the_time_at_which_the_phase_began() {
        let observed = |ready, fault: Option<&str>| Observed {
            generation: 1,
            certificate_fault: None,
            fault: fault.map(str::to_owned),
            controller: Pods {
                ready,
                desired: Some(2),
            },
            node: Pods {
                ready: 1,
                desired: Some(1),
            },
            hosts: Hosts::Missing(Vec::new()),
            upgrade: String::new(),
        };
        let at = |second| Time(Timestamp::from_second(second).expect("a time"));
        let write = |before: &Status, observed: &Observed, second| {
            before.next(observed, &at(second)).expect("a change")
        };
        let running = |before: &Status| {
            let next = write(before, &observed(2, None), 9);
            let event = of_change(&resource(before.clone()), &next, &at(9));
            event.expect("it begins to run")["metadata"]["name"].clone()
        };
        let first = write(&Status::default(), &observed(0, None), 1);
        let later = write(&first, &observed(1, None), 2);
        assert_eq!(running(&first), running(&later), "the same phase");
        let again = write(&write(&later, &observed(2, None), 3), &observed(1, None), 4);
        assert_ne!(running(&first), running(&again), "it was Running between");
        let failed = write(&later, &observed(1, Some("a")), 5);
        let refused = write(&failed, &observed(1, Some("b")), 6);
        let recovered = write(&refused, &observed(1, None), 7);
        let names = [&first, &again, &failed, &refused, &recovered].map(running);
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{i}: {names:?}");
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long = "ü".repeat(600) + "x";
        let event = of((Phase::New, ""), (Phase::Failed, &long)).expect("an event");
        assert_eq!(event["message"].as_str().map(str::len), Some(1024));
    }
}
