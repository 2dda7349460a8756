//! Histories of VMs and hosts.
//!
//! Goal: a history has every record of its subject that each command changed, as it was and as it became,
//! and nothing else; every member gives the same one, as far back as its log reaches. Method: random
//! sequences of commands, whose states are compared record by record; then members of a cluster, and one
//! whose log is cut.

use std::collections::{BTreeMap, BTreeSet};

use berth_codec as codec;
use berth_domain::event::{Name, Record};
use berth_domain::history::{Changed, Entry, Subject};
use berth_domain::host::Host;
use berth_domain::id::TimeMs;
use berth_domain::name::{HostName, VmName};
use berth_proto::event::v1::GetHistoryRequest;
use berth_proto::event::v1::event_service_client::EventServiceClient;
use berth_proto::host::v1::{CordonHostRequest, GetHostRequest, UncordonHostRequest};
use berth_proto::status::from_status;
use berth_replication::Applied;
use berth_replication::replay::Observer;
use berth_scheduler::change_log::ChangeLog;
use berth_scheduler::{Machine, Start};
use berth_state::State;
use berth_state::command::Envelope;
use berth_testkit::state::World;
use berth_testkit::state::draw::{Draw, draws, play};
use proptest::prelude::*;
use tonic::Status;
use tonic::transport::Channel;

use crate::common::world::{flavor, register, schedule, vm_request};
use crate::common::{Cluster, Member, config, eventually, hosts};
use crate::feed::records;

/// Returns the VMs and hosts that any state of a sequence has.
fn subjects(states: &[State]) -> Vec<Subject> {
    let vms: BTreeSet<VmName> = states
        .iter()
        .flat_map(|s| s.vms().keys().cloned())
        .collect();
    let hosts: BTreeSet<HostName> = states
        .iter()
        .flat_map(|s| s.hosts().keys().cloned())
        .collect();
    let vms = vms.into_iter().map(Subject::Vm);
    vms.chain(hosts.into_iter().map(Subject::Host)).collect()
}

/// Returns the changes between two states that concern a subject, by comparing all records.
fn compared(subject: &Subject, before: &State, after: &State) -> BTreeMap<Name, Changed> {
    let (before, after) = (records(before), records(after));
    let names: BTreeSet<&Name> = before.keys().chain(after.keys()).collect();
    let mut changes = BTreeMap::new();
    for name in names {
        let changed = Changed {
            before: before.get(name).cloned(),
            after: after.get(name).cloned(),
        };
        let sides = [&changed.before, &changed.after];
        let concerns = |record: &Record| subject.concerns(record);
        if changed.before != changed.after && sides.into_iter().flatten().any(concerns) {
            changes.insert(name.clone(), changed);
        }
    }
    changes
}

fn check(draws: &[Draw]) -> usize {
    let (_, commands) = play(draws);
    let mut machine = Machine::new(World::with_hosts(3).state);
    let mut states = vec![machine.state().clone()];
    let mut seen = Vec::new();
    for (request, now, command) in commands {
        let envelope = Envelope {
            at: TimeMs(now),
            principal: "unverified:test".to_owned(),
            request,
            audit: None,
            command,
        };
        let mut state = machine.state().clone();
        let index = state.revision() + 1;
        let done = state.apply(index, &envelope);
        let applied = Applied {
            outcome: done.outcome,
            changes: done.changes.iter().map(codec::encode_change).collect(),
        };
        states.push(state.clone());
        machine = Machine::new(state);
        seen.push((index, envelope, applied));
    }
    let mut count = 0;
    for subject in subjects(&states) {
        let mut change_log = ChangeLog::new(subject.clone());
        for (number, (index, envelope, applied)) in seen.iter().enumerate() {
            change_log.after(&machine, *index, envelope, applied);
            let entries = change_log.take().expect("rows are read");
            let expected = compared(&subject, &states[number], &states[number + 1]);
            if expected.is_empty() {
                assert!(entries.is_empty(), "{entries:?}");
                continue;
            }
            let [entry] = &entries[..] else {
                panic!("{} entries of {:?}", entries.len(), envelope.command);
            };
            assert_eq!((entry.revision, entry.at), (*index, envelope.at));
            assert!(format!("{:?}", envelope.command).starts_with(&entry.command));
            let changes = entry.changes.iter();
            let changes: BTreeMap<Name, Changed> = changes
                .map(|changed| (changed.record().expect("a side").name(), changed.clone()))
                .collect();
            assert_eq!(changes, expected);
            count += 1;
        }
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_history_has_what_changed_of_its_subject(draws in draws()) {
        check(&draws);
    }
}

/// A history that was sent whole.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    first: u64,
    last: u64,
    entries: Vec<Entry>,
}

async fn history(channel: &Channel, name: &str, after: u64) -> Result<Sent, Status> {
    let mut client = EventServiceClient::new(channel.clone());
    let request = GetHistoryRequest {
        name: name.to_owned(),
        after_revision: after,
        ..GetHistoryRequest::default()
    };
    let mut stream = client.get_history(request).await?.into_inner();
    let mut sent = Sent {
        first: 0,
        last: 0,
        entries: Vec::new(),
    };
    while let Some(message) = stream.message().await? {
        assert!(message.revision >= sent.last, "it goes back");
        for wire in message.entries {
            let entry = Entry::try_from(wire).expect("an entry");
            assert!(entry.revision > sent.last && entry.revision <= message.revision);
            sent.entries.push(entry);
        }
        (sent.first, sent.last) = (message.first_revision, message.revision);
    }
    Ok(sent)
}

fn commands(sent: &Sent) -> Vec<&str> {
    sent.entries.iter().map(|e| e.command.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_gives_the_same_history() {
    let cluster = Cluster::start(3).await;
    let channel = cluster.channel().await;
    for name in ["h1", "h2"] {
        register(&channel, name, 2, 8).await;
    }
    flavor(&channel, "one", 1).await;
    for name in ["a", "b"] {
        let made = schedule(&channel, vm_request(name, "one")).await;
        made.expect("it fits");
    }
    let refused = schedule(&channel, vm_request("a", "one")).await;
    refused.expect_err("the name is taken");
    let mut of_all = Vec::new();
    for member in &cluster.members {
        let own = member.channel().await;
        let vm = history(&own, "vms/a", 0).await.expect("a history");
        assert_eq!(commands(&vm), ["BeginBoot"]);
        let entry = &vm.entries[0];
        let request = entry.request.as_ref().expect("a request");
        let choice = request.request.choice.as_ref().expect("a choice");
        assert_eq!((choice.hosts, choice.ranking.len()), (2, 2));
        let kinds: BTreeSet<_> = entry
            .changes
            .iter()
            .filter_map(Changed::record)
            .collect::<Vec<_>>()
            .into_iter()
            .map(|record| record.name().kind())
            .collect();
        assert_eq!(kinds.len(), 3, "a VM, its claim and its operation");
        assert!(entry.changes.iter().all(|changed| changed.before.is_none()));
        let after = history(&own, "vms/a", entry.revision).await.expect("none");
        assert_eq!((after.entries.len(), after.first), (0, entry.revision));
        let host = format!("hosts/{}", choice.host);
        let host = history(&own, &host, 0).await.expect("a history");
        assert_eq!(commands(&host)[..2], ["RegisterHost", "BeginBoot"]);
        let none = history(&own, "vms/nosuch", 0).await.expect("an empty one");
        assert_eq!(none.entries, Vec::new());
        for after in [vm.last + 1_000_000, u64::MAX] {
            let beyond = history(&own, "vms/a", after).await.expect_err("beyond");
            assert_eq!(from_status(&beyond).reason, "REVISION_NOT_REACHED");
        }
        for name in ["", "vms", "vms/", "operations/1", "flavors/one", "vms/a b"] {
            let status = history(&own, name, 0).await.expect_err(name);
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{name}");
        }
        of_all.push((vm.entries, host.entries));
    }
    assert!(of_all.iter().all(|of_one| *of_one == of_all[0]));
}

/// Returns the host as it became with each entry, which has to be what it was before the next one.
fn chained(sent: &Sent) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    for changed in sent.entries.iter().flat_map(|entry| &entry.changes) {
        let host = |record: &Option<Record>| match record {
            Some(Record::Host(host)) => Some((**host).clone()),
            _ => None,
        };
        let (before, after) = (host(&changed.before), host(&changed.after));
        if let Some(last) = hosts.last() {
            assert_eq!(Some(last), before.as_ref());
        }
        hosts.extend(after);
    }
    hosts
}

async fn host(channel: &Channel) -> Host {
    let request = GetHostRequest {
        name: "hosts/h1".to_owned(),
        ..GetHostRequest::default()
    };
    let response = hosts(channel).get_host(request).await.expect("a host");
    let host = response.into_inner().host.expect("a host");
    host.try_into().expect("a host")
}

/// Goal: where the log was cut, a history begins there, states it, and is complete from there on.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_begins_where_the_log_does() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut config = config(folder.path(), Start::Bootstrap);
    config.checkpoint_entries = 100;
    let member = Member::start(config).await;
    let channel = member.channel().await;
    register(&channel, "h1", 1, 4).await;
    for number in 0..300 {
        let (name, request_id) = ("hosts/h1".to_owned(), String::new());
        let mut client = hosts(&channel);
        if number % 2 == 0 {
            let request = CordonHostRequest { name, request_id };
            client.cordon_host(request).await.expect("done");
        } else {
            let request = UncordonHostRequest { name, request_id };
            client.uncordon_host(request).await.expect("done");
        }
    }
    let now = host(&channel).await;
    // The log is cut when a checkpoint is on the disk, which takes a moment.
    let sent = eventually("a cut log", || async {
        let sent = history(&channel, "hosts/h1", 0).await.expect("a history");
        (sent.first > 100).then_some(sent)
    })
    .await;
    let chain = chained(&sent);
    assert!(chain.len() < 300, "{}", chain.len());
    assert!(chain.contains(&now));
    let twice = tokio::join!(
        history(&channel, "hosts/h1", 0),
        history(&channel, "hosts/h1", 0)
    );
    for one in [twice.0, twice.1] {
        let one = one.expect("a history");
        // Neither the log nor the checkpoints stand still between two histories: a later checkpoint may
        // be finished, and the log cut, and the host, which has no agent, may be given up.
        assert!(one.first >= sent.first && one.last >= sent.last);
        let of_both = |entry: &&Entry| entry.revision > one.first && entry.revision <= sent.last;
        let earlier: Vec<_> = sent.entries.iter().filter(of_both).collect();
        let later: Vec<_> = one.entries.iter().filter(of_both).collect();
        assert_eq!(later, earlier);
    }
}
