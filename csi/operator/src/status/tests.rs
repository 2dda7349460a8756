//! Goal: each phase means what it says, and nothing is written while nothing changes. Method: all
//! combinations of what is observed.

use k8s_openapi::jiff::Timestamp;

use super::*;

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).expect("a time"))
}

fn pods(ready: i64, desired: Option<i64>) -> Pods {
    Pods { ready, desired }
}

/// The phase that a condition names as its reason.
fn phase_of(condition: &Condition) -> Phase {
    serde_json::from_value(condition.reason.clone().into()).expect("a phase")
}

fn all_observed() -> Vec<Observed> {
    let faults = [None, Some("fault".to_owned())];
    let counted = [
        pods(0, None),
        pods(0, Some(1)),
        pods(1, Some(1)),
        pods(0, Some(0)),
    ];
    let hosts = [
        Hosts::Unknown("no scheduler responds".to_owned()),
        Hosts::Missing(vec!["n1".to_owned()]),
        Hosts::Missing(Vec::new()),
    ];
    let mut all = Vec::new();
    for certificate_fault in &faults {
        for fault in &faults {
            for controller in counted {
                for node in counted {
                    for hosts in &hosts {
                        all.push(Observed {
                            generation: 7,
                            certificate_fault: certificate_fault.clone(),
                            fault: fault.clone(),
                            controller,
                            node,
                            hosts: hosts.clone(),
                            upgrade: String::new(),
                        });
                    }
                }
            }
        }
    }
    all
}

/// Goal: Running says that everything was seen, and Failed that something is wrong.
#[test]
fn phases_are_true() {
    let mut counts = [0; 3];
    for observed in all_observed() {
        let status = observed.status();
        let is_ready = |pods: Pods| pods.desired.is_some_and(|desired| pods.ready >= desired);
        let faulty = observed.fault.is_some() || observed.certificate_fault.is_some();
        let complete = is_ready(observed.controller)
            && is_ready(observed.node)
            && observed.hosts == Hosts::Missing(Vec::new());
        let expected = match (faulty, complete) {
            (true, _) => Phase::Failed,
            (false, true) => Phase::Running,
            (false, false) => Phase::Initializing,
        };
        assert_eq!(status.phase, expected, "{observed:?}");
        assert!(!status.reason.is_empty());
        let ready = status.conditions.last().expect("conditions");
        let is_ready = ready.status == ConditionStatus::True;
        assert_eq!(
            (ready.kind, is_ready),
            (ConditionType::Ready, complete && !faulty)
        );
        assert_eq!(phase_of(ready), expected, "{observed:?}");
        counts[usize::from(!faulty) + usize::from(!faulty && complete)] += 1;
        assert!(status.conditions.iter().all(|c| c.observed_generation == 7));
        assert_eq!(status.driver_components.len(), 2);
    }
    assert_eq!(counts, [144, 44, 4]);
}

/// Goal: no write while nothing changes, and the times of what does not change stay. Method: each
/// observation after each other one.
#[test]
fn only_a_change_is_written() {
    let all = all_observed();
    for first in &all {
        let stored = Status::default()
            .next(first, &at(1))
            .expect("the first one");
        assert_eq!(stored.next(first, &at(2)), None, "{first:?}");
        for second in &all {
            let Some(next) = stored.next(second, &at(2)) else {
                assert_eq!(stored.phase, second.status().phase);
                continue;
            };
            assert_eq!(next.last_updated, Some(at(2)));
            for (old, new) in stored.conditions.iter().zip(&next.conditions) {
                let same = (old.status, &old.reason) == (new.status, &new.reason);
                let expected = if same { at(1) } else { at(2) };
                assert_eq!(new.last_update_time, Some(expected));
            }
            assert_eq!(next.next(second, &at(3)), None);
        }
    }
}

/// Goal: what an upgrade waits for is said of the agents alone, and while they are not ready.
#[test]
fn what_an_upgrade_waits_for_is_said() {
    for mut observed in all_observed() {
        let before = observed.status();
        observed.upgrade = "n1 (data)".to_owned();
        let status = observed.status();
        assert_eq!(status.phase, before.phase);
        assert!(status.driver_components[1].reason.ends_with("; n1 (data)"));
        assert_eq!(status.driver_components[0], before.driver_components[0]);
        let is_agents = before.reason.starts_with("node: ");
        assert_eq!(status.reason.ends_with("; n1 (data)"), is_agents);
        assert_eq!(status.conditions, before.conditions);
    }
}

#[test]
fn the_form_is_that_of_pmem_csi() {
    let observed = &all_observed()[0];
    let status = Status::default().next(observed, &at(0)).expect("a change");
    let json = serde_json::to_value(&status).expect("JSON");
    assert_eq!(json["phase"], "Initializing");
    assert_eq!(json["conditions"][1]["type"], "DriverDeployed");
    assert_eq!(json["conditions"][1]["status"], "True");
    assert_eq!(
        json["conditions"][1]["lastUpdateTime"],
        "1970-01-01T00:00:00Z"
    );
    assert_eq!(json["driverComponents"][0]["component"], "Controller");
    assert_eq!(json["driverComponents"][1]["component"], "Node");
    assert_eq!(json["driverComponents"][1]["status"], "NotReady");
    assert_eq!(json["lastUpdated"], "1970-01-01T00:00:00Z");
    assert_eq!(
        serde_json::from_value::<Status>(json).expect("a status"),
        status
    );
    assert_eq!(serde_json::to_value(Phase::New).expect("JSON"), "");
}
