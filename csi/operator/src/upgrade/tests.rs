//! Goal: no agent that runs is replaced while its node makes or erases a volume, never are more than
//! `maxUnavailable` unavailable because of an upgrade, and an upgrade ends. Method: every combination of
//! what is observed of one agent; pods as the API server returns them; whole upgrades, step by step, of
//! clusters drawn at random, against a model of Kubernetes.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn agent(node: &str, revision: &str) -> Agent {
    Agent {
        name: format!("d-node-{node}"),
        uid: format!("{node}-{revision}"),
        node: node.to_owned(),
        revision: revision.to_owned(),
        is_ready: true,
        is_running: true,
    }
}

fn hosts(up: &[&str], busy: &[(&str, &str)]) -> Hosts {
    let busy = busy
        .iter()
        .map(|(node, volume)| ((*node).to_owned(), vec![(*volume).to_owned()]));
    Hosts {
        up: up.iter().map(ToString::to_string).collect(),
        busy: busy.collect(),
    }
}

fn names(step: &Step) -> Vec<&str> {
    step.replaced
        .iter()
        .map(|agent| agent.node.as_str())
        .collect()
}

fn one_of_three<'a>(agents: &'a [Agent], hosts: Result<&'a Hosts, &'a str>) -> Situation<'a> {
    Situation {
        agents,
        revision: "new",
        desired: 3,
        available: 3,
        max_unavailable: MaxUnavailable::Count(1),
        hosts,
    }
}

/// Goal: every combination of what is known of one agent of an older revision, with all others available.
#[test]
fn one_agent_in_every_state() {
    for (is_ready, is_running, is_up, is_busy, is_known) in (0..32_u8)
        .map(|bits| [1, 2, 4, 8, 16].map(|bit| bits & bit != 0))
        .map(|[a, b, c, d, e]| (a, b, c, d, e))
    {
        let mut agents = vec![agent("n1", "old"), agent("n2", "new"), agent("n3", "new")];
        agents[0].is_ready = is_ready;
        agents[0].is_running = is_running;
        let up = if is_up {
            vec!["n1", "n2", "n3"]
        } else {
            vec!["n2", "n3"]
        };
        let busy = if is_busy {
            vec![("n1", "data")]
        } else {
            Vec::new()
        };
        let hosts = hosts(&up, &busy);
        let known = if is_known {
            Ok(&hosts)
        } else {
            Err("no response")
        };
        let step = step(&one_of_three(&agents, known));
        let is_replaced = !is_running || (is_known && !is_busy);
        let case = (is_ready, is_running, is_up, is_busy, is_known);
        assert_eq!(!step.replaced.is_empty(), is_replaced, "{case:?}");
        assert_eq!(step.waits_for.is_empty(), is_replaced, "{case:?}: {step:?}");
        let expected = if is_known { "n1 (data)" } else { "no response" };
        assert!(is_replaced || step.waits_for.contains(expected), "{step:?}");
    }
}

#[test]
fn one_is_replaced_at_a_time_and_a_busy_node_keeps_no_other_waiting() {
    let agents = [agent("n1", "old"), agent("n2", "old"), agent("n3", "old")];
    let all = ["n1", "n2", "n3"];
    let idle = hosts(&all, &[]);
    let first = step(&one_of_three(&agents, Ok(&idle)));
    assert_eq!(names(&first), ["n1"]);
    assert_eq!(
        first.waits_for,
        "2 agents wait for others: 1 of 3 are unavailable"
    );
    let busy = hosts(&all, &[("n1", "data"), ("n9", "other")]);
    let second = step(&one_of_three(&agents, Ok(&busy)));
    assert_eq!(names(&second), ["n2"]);
    assert!(second.waits_for.contains("n1 (data)") && second.waits_for.contains("d-node-n1"));
    assert!(!second.waits_for.contains("n9"), "{}", second.waits_for);
    // The new one does not report yet: no other one is replaced.
    let missing = hosts(&["n2", "n3"], &[]);
    let agents = [agent("n1", "new"), agent("n2", "old"), agent("n3", "old")];
    let third = step(&one_of_three(&agents, Ok(&missing)));
    assert_eq!(names(&third), [""; 0]);
    assert!(third.waits_for.contains("1 of 3 are unavailable"));
    // Nor while Kubernetes does not count it as available yet.
    let counted = Situation {
        available: 2,
        ..one_of_three(&agents, Ok(&idle))
    };
    assert_eq!(names(&step(&counted)), [""; 0]);
    // A node without a pod counts as well.
    let absent = one_of_three(&agents[1..], Ok(&idle));
    assert_eq!(names(&step(&absent)), [""; 0]);
    // A template that is as it was before has an older revision's name, and the highest number.
    let back = Situation {
        revision: "old",
        ..one_of_three(&agents, Ok(&idle))
    };
    assert_eq!(names(&step(&back)), ["n1"]);
}

/// Goal: agents of which the schedulers have no host are replaced one after the other: their addresses may be
/// wrong, or a scheduler has just begun to lead.
#[test]
fn agents_that_do_not_report_are_replaced_one_after_the_other() {
    let old = [agent("n1", "old"), agent("n2", "old"), agent("n3", "old")];
    let none = hosts(&[], &[]);
    assert_eq!(names(&step(&one_of_three(&old, Ok(&none)))), ["n1"]);
    let begun = [agent("n1", "new"), agent("n2", "old"), agent("n3", "old")];
    assert_eq!(names(&step(&one_of_three(&begun, Ok(&none)))), [""; 0]);
    assert_eq!(names(&step(&one_of_three(&begun[1..], Ok(&none)))), [""; 0]);
    let first = hosts(&["n1"], &[]);
    assert_eq!(names(&step(&one_of_three(&begun, Ok(&first)))), ["n2"]);
    let early = Situation {
        available: 0,
        ..one_of_three(&begun, Ok(&first))
    };
    assert_eq!(names(&step(&early)), [""; 0]);
    // One that works waits for all others.
    let last = hosts(&["n1", "n3"], &[]);
    assert_eq!(names(&step(&one_of_three(&begun, Ok(&last)))), ["n2"]);
    let busy = hosts(&["n1", "n3"], &[("n2", "data")]);
    assert_eq!(names(&step(&one_of_three(&begun, Ok(&busy)))), [""; 0]);
}

#[test]
fn a_refusal_names_ten_nodes_and_volumes_at_most() {
    let nodes: Vec<String> = (0..25).map(|n| format!("n{n:02}")).collect();
    let agents: Vec<Agent> = nodes.iter().map(|node| agent(node, "old")).collect();
    let volumes: Vec<String> = (0..12).map(|n| format!("v{n}")).collect();
    let hosts = Hosts {
        up: nodes.iter().cloned().collect(),
        busy: nodes
            .iter()
            .map(|node| (node.clone(), volumes.clone()))
            .collect(),
    };
    let step = step(&Situation {
        desired: 25,
        available: 25,
        ..one_of_three(&agents, Ok(&hosts))
    });
    assert!(step.waits_for.contains("and 2 more) and") || step.waits_for.contains("and 15 more"));
    assert!(!step.waits_for.contains("n10 ("), "{}", step.waits_for);
}

#[test]
fn an_upgrade_always_makes_progress() {
    let number = |count| MaxUnavailable::parse(&IntOrString::Int(count));
    let text = |text: &str| MaxUnavailable::parse(&IntOrString::String(text.to_owned()));
    assert_eq!(number(1), Ok(MaxUnavailable::Count(1)));
    assert_eq!(text("30%"), Ok(MaxUnavailable::Percent(30)));
    for (percent, desired, expected) in [
        (30, 10, 3),
        (30, 11, 4),
        (1, 3, 1),
        (100, 7, 7),
        (50, 0, 1),
        (1, i64::MAX, i64::MAX / 100),
    ] {
        assert_eq!(MaxUnavailable::Percent(percent).among(desired), expected);
    }
    for wrong in [number(0), number(-1)] {
        assert!(wrong.is_err_and(|why| why.contains("hint: ")));
    }
    for wrong in [
        "",
        "%",
        "0%",
        "101%",
        "-1%",
        "+1%",
        "1",
        "1.5%",
        "x%",
        "9999999999999999999999%",
    ] {
        let error = text(wrong).expect_err(wrong);
        assert!(error.contains(wrong) && error.contains("hint: "), "{error}");
    }
}

#[test]
fn pods_are_read_as_they_are() {
    let pod = |status: Value| {
        json!({
            "metadata": {"name": "p", "uid": "u", "labels": {"controller-revision-hash": "abc"}},
            "spec": {"nodeName": "n1"},
            "status": status,
        })
    };
    let read = |status: Value| Agent::of_pod(&pod(status)).expect("it stays");
    let state = |state: Value| {
        json!({"phase": "Pending", "containerStatuses": [
            {"name": "registrar", "state": {"waiting": {}}}, {"name": "berth", "state": state}]})
    };
    for (status, is_running) in [
        (json!({}), false),
        (json!({"phase": "Pending"}), false),
        (json!({"phase": "Failed"}), false),
        (json!({"phase": "Succeeded"}), false),
        (json!({"phase": "Running"}), true),
        (json!({"phase": "Unknown"}), true),
        (state(json!({"running": {"startedAt": "x"}})), true),
        (state(json!({})), true),
        (
            state(json!({"waiting": {"reason": "CrashLoopBackOff"}})),
            false,
        ),
        (state(json!({"terminated": {"exitCode": 1}})), false),
    ] {
        assert_eq!(read(status.clone()).is_running, is_running, "{status}");
    }
    let conditions = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
    assert!(read(conditions("True")).is_ready && !read(conditions("False")).is_ready);
    let agent = read(json!(null));
    assert_eq!(
        (agent.node.as_str(), agent.revision.as_str()),
        ("n1", "abc")
    );
    let mut going = pod(json!({}));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(Agent::of_pod(&going), None);
    for other in [
        json!(null),
        json!([]),
        json!({"metadata": 1, "status": {"conditions": 1}}),
    ] {
        assert_eq!(
            Agent::of_pod(&other).map(|agent| agent.is_running),
            Some(false)
        );
    }
}

#[test]
fn the_newest_revision_has_the_highest_number() {
    let revision = |number: i64, hash: &str| json!({"metadata": {"labels": {"controller-revision-hash": hash}}, "revision": number});
    let all = [revision(2, "b"), revision(10, "a"), revision(9, "c")];
    assert_eq!(newest_revision(&all), Some("a".to_owned()));
    assert_eq!(newest_revision(&[]), None);
    assert_eq!(newest_revision(&[json!({"revision": 1})]), None);
}

/// A model of a cluster: Kubernetes makes a pod of the newest revision where one is missing.
#[derive(Clone, Debug)]
struct Cluster {
    agents: Vec<Option<Agent>>,
    busy: BTreeSet<usize>,
}

impl Cluster {
    fn situation_of(&self, max_unavailable: MaxUnavailable) -> (Vec<Agent>, Hosts, MaxUnavailable) {
        let agents: Vec<Agent> = self.agents.iter().flatten().cloned().collect();
        let up = agents.iter().filter(|agent| agent.is_ready);
        let up = up.map(|agent| agent.node.clone()).collect();
        let busy = self
            .busy
            .iter()
            .map(|at| (format!("n{at:03}"), vec!["v".to_owned()]));
        (
            agents,
            Hosts {
                up,
                busy: busy.collect(),
            },
            max_unavailable,
        )
    }
}

proptest! {
    /// Goal: whatever happens between the steps, the invariants hold after each; once volumes and pods come
    /// to rest, every agent is of the newest revision.
    #[test]
    fn whole_upgrades(
        count in 1..24_usize,
        budget in prop_oneof![
            (1..5_i64).prop_map(MaxUnavailable::Count),
            (1..=100_i64).prop_map(MaxUnavailable::Percent),
        ],
        events in prop::collection::vec((0..5_u8, 0..24_usize), 0..200),
    ) {
        let node = |at: usize| format!("n{at:03}");
        let mut cluster = Cluster {
            agents: (0..count).map(|at| Some(agent(&node(at), "old"))).collect(),
            busy: BTreeSet::new(),
        };
        let desired = i64::try_from(count).expect("few");
        let quiet = std::iter::repeat_n((9, 0), 2 * count + 2);
        for (event, at) in events.into_iter().chain(quiet) {
            let at = at % count;
            match event {
                0 => { cluster.busy.insert(at); }
                1 => { cluster.busy.remove(&at); }
                2 => if let Some(agent) = &mut cluster.agents[at] {
                    agent.is_ready = !agent.is_ready;
                },
                3 => cluster.agents[at] = cluster.agents[at].take().or_else(|| Some(agent(&node(at), "new"))),
                9 => {
                    cluster.busy.clear();
                    for at in 0..count {
                        let slot = &mut cluster.agents[at];
                        slot.get_or_insert_with(|| agent(&node(at), "new")).is_ready = true;
                    }
                }
                _ => {}
            }
            let (agents, hosts, max_unavailable) = cluster.situation_of(budget);
            let step = step(&Situation {
                agents: &agents,
                revision: "new",
                desired,
                available: desired,
                max_unavailable,
                hosts: Ok(&hosts),
            });
            for gone in &step.replaced {
                prop_assert_eq!(gone.revision.as_str(), "old");
                prop_assert!(!hosts.busy.contains_key(&gone.node));
                let index: usize = gone.node[1..].parse().expect("a number");
                cluster.agents[index] = None;
            }
            let count_ready = |all: &[Agent]| all.iter().filter(|agent| agent.is_ready).count();
            let unavailable = count - count_ready(&agents);
            let permitted = usize::try_from(budget.among(desired)).expect("few");
            prop_assert!(count_ready(&step.replaced) <= permitted.saturating_sub(unavailable));
            let left = cluster.agents.iter().flatten().any(|agent| agent.revision == "old");
            prop_assert_eq!(left, !step.waits_for.is_empty(), "{}", step.waits_for);
        }
        let is_new = |one: &Option<Agent>| one.as_ref().is_none_or(|agent| agent.revision == "new");
        prop_assert!(cluster.agents.iter().all(is_new));
    }
}
