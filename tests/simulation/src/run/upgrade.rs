//! A rolling upgrade: nodes are exchanged for newer programs in any order, and the version is raised
//! once nobody is behind.
//!
//! Not here: what a node of an older version does otherwise; that is in the cores, as in production.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_decide::upgrade::{MemberVersion, plan_finalize};
use berth_decide::{Action, DecisionRequest};
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion, TOO_OLD};
use berth_scheduler::machine::Level;
use berth_state::command::Command;

use super::{Event, MEMBERS, Run, index};
use crate::chance::Chance;
use crate::packet::{Node, Question};

/// How often it is asked whether somebody is still behind.
const LOOK_MS: u64 = 1_000;
/// For how long the user goes on after the version was raised.
const AFTER_MS: u64 = 20_000;

/// Returns as what each node is started anew, one version after the other. In the end everybody has
/// the newest; now and then somebody goes back in between.
fn plan(
    from: ServiceVersion,
    nodes: &[Node],
    chance: &mut Chance,
) -> BTreeMap<Node, VecDeque<ServiceVersion>> {
    let newest = ServiceVersion::CURRENT;
    let versions = nodes.iter().map(|node| {
        let versions = if chance.percent(30) {
            vec![newest, from, newest]
        } else {
            vec![newest]
        };
        (*node, versions.into())
    });
    versions.collect()
}

impl Run {
    /// Returns whether the run begins with older programs.
    pub(super) fn is_upgrade(&self) -> bool {
        self.options.from < ServiceVersion::CURRENT
    }

    /// Gives all nodes their first programs, and plans who gets newer ones when.
    pub(super) fn plan_upgrade(&mut self) {
        if !self.is_upgrade() {
            return;
        }
        let nodes = self.nodes();
        for node in &nodes {
            self.set_version(*node, self.options.from);
        }
        let time_ms = self.options.faults_ms * 6 / 10;
        self.exchanges = plan(self.options.from, &nodes, &mut self.chance);
        let number = |node| self.exchanges[node].len();
        let all: Vec<Node> = nodes.iter().flat_map(|n| vec![*n; number(n)]).collect();
        for node in all {
            let at = self.chance.between(time_ms / 20, time_ms);
            self.schedule(at, Event::Exchange(node));
        }
        self.schedule(time_ms, Event::Finalize);
    }

    fn set_version(&mut self, node: Node, version: ServiceVersion) {
        match node {
            Node::Member(id) => self.members[index(id)].level = Level(version),
            Node::Conductor(at) => self.conductors[at].version = version,
            Node::Agent(at) => self.agents[at].version = version,
            Node::User | Node::Writer(_) | Node::Administrator(_) => {}
        }
    }

    /// Ends a program, and starts the next one that is planned.
    pub(super) fn exchange(&mut self, node: Node) -> Result<(), String> {
        if !self.options.has_faults && self.works_at(node) {
            // An operator waits until nothing is under way on a host.
            self.schedule(100, Event::Exchange(node));
            return Ok(());
        }
        let planned = self.exchanges.get_mut(&node);
        let version = planned.and_then(VecDeque::pop_front);
        let version = version.ok_or_else(|| format!("{node:?} is exchanged too often"))?;
        self.crash(node);
        self.set_version(node, version);
        self.restart(node)
    }

    /// Returns whether an operation is under way on the host of an agent.
    fn works_at(&self, node: Node) -> bool {
        let Node::Agent(at) = node else { return false };
        let leader = self.members.iter().find(|m| m.decides());
        let Some(state) = leader.and_then(|m| m.state()) else {
            return true;
        };
        let host = &self.hosts[at];
        state.running_operations().any(|operation| {
            // The moves of a drain are operations of their own.
            let Some(vm) = operation.vm() else {
                return false;
            };
            let vm = state.vm(vm);
            let claims = vm.map(|vm| state.claims_of_host(host).any(|c| c.vm == vm.name));
            claims.unwrap_or(true)
        })
    }

    /// Raises the version once no program is behind, and tries to raise it to a lower one meanwhile;
    /// has the user go on when it is raised.
    pub(super) fn finalize(&mut self) {
        let leader = self.members.iter().find(|m| m.decides());
        let Some(state) = leader.and_then(|m| m.state()) else {
            return self.schedule(LOOK_MS, Event::Finalize);
        };
        let current = ServiceVersion::CURRENT;
        if state.header().cluster_version == current {
            self.finalized_at = Some(self.now_ms());
            let wishes = self.chance.index(20) + 8;
            let outs = self.user.draw(wishes, 1, AFTER_MS, &mut self.chance);
            return self.out(Node::User, outs);
        }
        let members = self.members.iter().zip(1..=MEMBERS);
        let members: Vec<_> = members
            .map(|(member, id)| MemberVersion {
                id,
                version: member.is_up().then_some(member.level.0),
            })
            .collect();
        let version = ServiceVersion(self.chance.between(1, current.0.into()) as u32);
        let planned = plan_finalize(state, &members, version, BTreeSet::new());
        let hosts = state.hosts().values();
        let hosts_new = hosts
            .filter(|view| view.host.report.service_version == current)
            .count();
        let raise = if version < ServiceVersion::FINALIZE_UPGRADE {
            // Which versions can be raised to is known before the command is written.
            Some(Command::FinalizeUpgrade {
                version,
                gone: BTreeSet::new(),
            })
        } else if version < current {
            planned.ok().flatten()
        } else {
            // Agents may stay behind; here none does, so that nothing is refused afterwards.
            planned
                .ok()
                .flatten()
                .filter(|_| hosts_new == self.hosts.len())
        };
        if let Some(raise) = raise {
            let question = Question::Decide(DecisionRequest::new("operator", Action::Plain(raise)));
            let outs = self.operator.ask(question, (), &mut self.numbers);
            self.out(Node::User, outs);
        }
        self.schedule(LOOK_MS, Event::Finalize);
    }

    /// Checks that nothing was refused for a version once the upgrade was over.
    pub(super) fn nothing_gated_afterwards(&self) -> Result<(), String> {
        let Some(finalized_at) = self.finalized_at else {
            return if self.is_upgrade() {
                Err("the version was never raised".to_owned())
            } else {
                Ok(())
            };
        };
        let late = self
            .user
            .wishes
            .iter()
            .filter(|w| w.first_at > Some(finalized_at));
        for wish in late {
            if let Some(Err(refusal)) = &wish.answer
                && [TOO_OLD, CLUSTER_TOO_OLD].contains(&refusal.reason.as_str())
            {
                return Err(format!("after the upgrade: {refusal}"));
            }
        }
        Ok(())
    }
}
