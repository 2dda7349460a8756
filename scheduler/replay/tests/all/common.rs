//! A leader in this process that records what it decides, and backups of what it recorded.

use std::collections::{BTreeMap, BTreeSet};

use berth_backup::{Chain, Header, Kind, Reader, VerifyError, Writer};
use berth_codec::{admit, encode_command};
use berth_decide::{Action, Decision, DecisionRequest};
use berth_domain::flavor::Flavor;
use berth_domain::host::HostReport;
use berth_domain::id::{OperationId, ProviderId, TimeMs};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Effect, Mark, Step};
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;
use berth_replay::{Changes, Replayer, Report};
use berth_replication::effects::Position;
use berth_replication::replay::Observer;
use berth_replication::{Applied, Machine as _};
use berth_scheduler::machine::{Level, Machine};
use berth_state::command::{Command, Envelope, LeaseRequest};
use berth_state::{Reply, State};
use berth_store::StateHash;
use berth_testkit::state::{conductor, host_name, uuid};
use raft::eraftpb::Entry;

/// A leader, and what it recorded since its full backup.
pub(crate) struct Leader {
    pub(crate) machine: Machine,
    index: u64,
    now: u64,
    /// The state of the full backup.
    first: Option<(Machine, Position)>,
    pub(crate) entries: Vec<(u64, Envelope)>,
    /// The host of the next new VM, whatever is decided: a fault.
    pub(crate) misplaced: Option<HostName>,
    /// Boots that end without a try at another host: numbers of their steps.
    pub(crate) failing: BTreeSet<u64>,
    /// Boots for which there was no other host, with the reason.
    pub(crate) failed: BTreeMap<u64, String>,
}

impl Leader {
    /// Returns one with hosts `h1`, `h2`, …, all of which report this.
    pub(crate) fn new(hosts: u32, report: &HostReport) -> Self {
        let mut leader = Self {
            machine: Machine::default(),
            index: 0,
            now: 1_000_000,
            first: None,
            entries: Vec::new(),
            misplaced: None,
            failing: BTreeSet::new(),
            failed: BTreeMap::new(),
        };
        let (version, gone) = (ServiceVersion::CURRENT, Default::default());
        leader.plain(Command::FinalizeUpgrade { version, gone });
        for number in 1..=hosts {
            leader.plain(Command::RegisterHost {
                host: host_name(&format!("h{number}")),
                provider: ProviderId(uuid(2, number.into())),
                report: report.clone(),
            });
        }
        leader
    }

    /// Makes the full backup: what is recorded after it goes into the increment.
    pub(crate) fn full_backup(&mut self) {
        let at = position_of(&self.machine, self.index);
        self.first = Some((self.machine.clone(), at));
        self.entries.clear();
    }

    pub(crate) fn state(&self) -> &State {
        self.machine.state()
    }

    /// Decides, applies what was decided, and records it.
    pub(crate) fn submit(&mut self, action: Action) -> Result<Reply, Refusal> {
        self.now += 1_000;
        let request = DecisionRequest::new("operator", action);
        match self.machine.decide(TimeMs(self.now), &request) {
            Decision::Command(proposal) => {
                self.index += 1;
                let mut envelope = proposal.envelope;
                if let Command::BeginBoot { claim, .. } = &mut envelope.command
                    && let Some(host) = self.misplaced.take()
                {
                    claim.host = host;
                }
                let applied = self.machine.apply(self.index, &envelope);
                self.entries.push((self.index, envelope));
                applied.outcome
            }
            Decision::Answer(answer) => Ok(answer.reply),
            Decision::Refuse(refusal) => Err(*refusal),
            Decision::Explain(unexplained) => Err(unexplained.explain()),
        }
    }

    /// Carries out a command that is not refused.
    pub(crate) fn plain(&mut self, command: Command) {
        let done = self.submit(Action::Plain(command));
        done.expect("the command is carried out");
    }

    pub(crate) fn flavor(&mut self, flavor: Flavor) {
        self.plain(Command::CreateFlavor(flavor));
    }

    pub(crate) fn lease(&self) -> LeaseRequest {
        LeaseRequest {
            conductor: conductor("c1"),
            ttl_ms: 1_000_000_000,
        }
    }

    /// Logs a mark of a step as the conductor of the operation does.
    pub(crate) fn advance(
        &mut self,
        operation: OperationId,
        step: Step,
        mark: Mark,
        effect: Effect,
    ) {
        let known = self.state().operation(operation).expect("it is there");
        let epoch = known.lease.as_ref().expect("it runs").epoch;
        self.plain(Command::Advance {
            operation,
            epoch,
            step,
            mark,
            effect,
        });
    }

    /// Returns the hosts and claims of all VMs.
    pub(crate) fn placements(&self) -> Vec<String> {
        placements(self.state())
    }

    /// Returns the full backup and one increment.
    pub(crate) fn backups(&self) -> [Vec<u8>; 2] {
        let (machine, at) = self.first.as_ref().expect("a full backup was made");
        let end = position_of(&self.machine, self.index);
        let mut full = Vec::new();
        let header = header(machine, None, *at);
        let mut writer = Writer::new(&mut full, header).expect("a header");
        for row in machine.rows() {
            writer.row(&row).expect("a row");
        }
        writer.finish().expect("an end");
        let mut increment = Vec::new();
        let header = self::header(&self.machine, Some(*at), end);
        let mut writer = Writer::new(&mut increment, header).expect("a header");
        for (index, envelope) in &self.entries {
            let entry = Entry {
                index: *index,
                term: 1,
                data: encode_command(envelope),
                ..Entry::default()
            };
            writer.entry(&entry).expect("an entry");
        }
        writer.finish().expect("an end");
        [full, increment]
    }

    /// Returns the state of the full backup.
    pub(crate) fn first(&self) -> &State {
        let (machine, _) = self.first.as_ref().expect("a full backup was made");
        machine.state()
    }
}

/// Returns where each VM of a state is, with what it takes there.
pub(crate) fn placements(state: &State) -> Vec<String> {
    let of = |vm: &VmName| {
        let claims = state.claims_of_vm(vm);
        let claims =
            claims.map(|claim| format!("{} {:?} {:?}", claim.host, claim.state, claim.assignment));
        claims.collect::<Vec<_>>().join("; ")
    };
    let vms = state.vms().values();
    vms.map(|vm| format!("{} {:?}: {}", vm.name, vm.state, of(&vm.name)))
        .collect()
}

fn position_of(machine: &Machine, index: u64) -> Position {
    Position {
        index,
        term: 1,
        hash: StateHash::of_rows(machine.rows()),
        rows: machine.rows().count() as u64,
    }
}

fn header(machine: &Machine, after: Option<Position>, end: Position) -> Header {
    let kind = match after {
        Some(_) => Kind::Increment,
        None => Kind::Full,
    };
    Header {
        cluster_id: "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10".to_owned(),
        cluster_version: machine.state().header().cluster_version.0,
        member_id: 1,
        kind: kind.into(),
        after: after.map(Into::into),
        end: end.into(),
        revision: machine.state().revision(),
        ..Header::default()
    }
}

/// Passes the commands of a chain to a replay.
struct Watcher(Replayer);

impl Observer<Machine> for Watcher {
    fn before(&mut self, machine: &Machine, index: u64, command: &Envelope) {
        self.0.before(machine.state(), index, command);
    }

    fn after(
        &mut self,
        machine: &Machine,
        index: u64,
        command: &Envelope,
        applied: &Applied<Result<Reply, Refusal>>,
    ) {
        let state = machine.state();
        self.0.after(state, index, command, applied.outcome.is_ok());
    }
}

/// Replays backups as the command does: they are verified on the way. Returns the report, and where
/// the VMs are with the changes.
pub(crate) fn replay_files(
    [full, increment]: &[Vec<u8>; 2],
    changes: Option<Changes>,
) -> Result<(Report, Vec<String>), VerifyError> {
    let mut chain = Chain::<Machine>::new(Level::default());
    chain.add(Reader::new(&full[..])?)?;
    let machine = chain.machine().expect("it was added");
    let replayer = Replayer::new(machine.state(), changes, admit, 5);
    let mut watcher = Watcher(replayer.expect("the changes are possible"));
    chain.add_observed(Reader::new(&increment[..])?, &mut watcher)?;
    let verified = chain.finish()?;
    let what_if = watcher
        .0
        .what_if()
        .map(|what_if| placements(what_if.state()));
    let report = watcher.0.finish(verified.machine.state());
    Ok((report.expect("it ends"), what_if.unwrap_or_default()))
}

/// Replays what a leader recorded, which may have been altered since.
pub(crate) fn replay(leader: &Leader, entries: &[(u64, Envelope)]) -> Report {
    let mut state = leader.first().clone();
    let mut replayer = Replayer::new(&state, None, admit, 5).expect("there is no change");
    for (index, envelope) in entries {
        replayer.before(&state, *index, envelope);
        let outcome = state.speculate(*index, envelope);
        replayer.after(&state, *index, envelope, outcome.is_ok());
    }
    replayer.finish(&state).expect("there is no change")
}

/// Compares where VMs are, and names those that are elsewhere.
#[track_caller]
pub(crate) fn expect_same(replayed: &[String], really: &[String]) {
    let only = |some: &[String], others: &[String]| -> Vec<String> {
        let missing = some.iter().filter(|vm| !others.contains(vm));
        missing.take(5).cloned().collect()
    };
    let (said, did) = (only(replayed, really), only(really, replayed));
    assert!(
        said.is_empty() && did.is_empty(),
        "replayed: {said:#?}\nreally: {did:#?}"
    );
}
