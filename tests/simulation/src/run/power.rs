//! What happens to the nodes: they lose power, are cut off, start again, and in the end are healed.

use super::{AGENT_TICK_MS, CONDUCTORS, Event, RAFT_TICK_MS, Run, index};
use crate::faults::Fault;
use crate::member::Start;
use crate::packet::Node;

impl Run {
    pub(super) fn fault(&mut self, fault: Fault) -> Result<(), String> {
        match fault {
            Fault::Crash(node, ms) => {
                self.crash(node);
                self.schedule(ms, Event::Restart(node));
            }
            Fault::CrashMembers(ms) => {
                for id in 1..=self.sites() {
                    self.crash(Node::Member(id));
                    let later = self.chance.between(0, 2_000);
                    self.schedule(ms + later, Event::Restart(Node::Member(id)));
                }
            }
            Fault::Stall(node, ms) => {
                self.stalled.insert(node, self.now + ms);
            }
            Fault::Isolate(node, ms) => {
                *self.isolations.entry(node).or_insert(0) += 1;
                self.network.isolate(node);
                self.schedule(ms, Event::Rejoin(node));
            }
            Fault::Cut(a, b, ms) => {
                self.network.cut(a, b);
                self.schedule(ms, Event::Mend(a, b));
            }
            Fault::HoldDisk(id, ms) => {
                self.held.insert(id, self.now + ms);
            }
            Fault::CutHosts(a, b, ms) => {
                if a != b {
                    self.world.cut(&self.hosts[a], &self.hosts[b]);
                    self.schedule(ms, Event::MendHosts(a, b));
                }
            }
        }
        Ok(())
    }

    pub(super) fn crash(&mut self, node: Node) {
        match node {
            Node::Member(id) => {
                let record = self.draw_record();
                let member = &mut self.members[index(id)];
                if member.is_up() {
                    member.crash_with(&mut self.chance, record);
                }
            }
            Node::Conductor(at) => self.conductors[at].crash(),
            Node::Agent(at) => self.agents[at].crash(),
            Node::User | Node::Writer(_) | Node::Administrator(_) => {}
        }
    }

    pub(super) fn restart(&mut self, node: Node) -> Result<(), String> {
        match node {
            Node::Member(id) => {
                let (now, bug) = (self.now_ms(), self.options.bug);
                let member = &mut self.members[index(id)];
                if member.is_up() || member.ended.is_some() {
                    return Ok(());
                }
                match member.start(now, &mut self.chance, &mut self.numbers, bug)? {
                    Start::Nothing => {}
                    Start::Joining(outs) => self.out(node, outs),
                    Start::Up => {
                        let life = member.life;
                        self.after_start(id)?;
                        let first = self.chance.between(1, RAFT_TICK_MS);
                        self.schedule(first, Event::RaftTick(id, life));
                    }
                }
            }
            Node::Conductor(at) => {
                if !self.conductors[at].up {
                    let outs = self.conductors[at].start(&mut self.numbers);
                    self.out(node, outs);
                }
            }
            Node::Agent(at) => {
                if !self.agents[at].is_up() {
                    let outs =
                        self.agents[at].start(&mut self.world, &mut self.chance, &mut self.numbers);
                    self.out(node, outs);
                    let life = self.agents[at].life;
                    self.schedule(AGENT_TICK_MS, Event::AgentTick(at, life));
                }
            }
            Node::User | Node::Writer(_) | Node::Administrator(_) => {}
        }
        Ok(())
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) -> Result<(), String> {
        self.healed = true;
        self.healed_at = self.now;
        self.writers.end();
        for agent in &mut self.agents {
            agent.devices.unpublish_all();
        }
        self.network.heal();
        self.stalled.clear();
        self.held.clear();
        for a in 0..self.hosts.len() {
            for b in a + 1..self.hosts.len() {
                self.world.heal(&self.hosts[a], &self.hosts[b]);
            }
        }
        self.follow_world();
        let nodes = self.nodes();
        nodes.into_iter().try_for_each(|node| self.restart(node))
    }

    /// Returns all nodes that can fail.
    pub(super) fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = (1..=self.sites()).map(Node::Member).collect();
        nodes.extend((0..CONDUCTORS).map(Node::Conductor));
        nodes.extend((0..self.agents.len()).map(Node::Agent));
        nodes
    }
}
