//! What is measured: members as processes, clients that write, and one round of losing the leader.

use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

/// How many members a group has.
pub(crate) const MEMBERS: usize = 3;

/// How long the group works before its leader is killed.
const LEAD_IN: Duration = Duration::from_millis(400);
/// How often it is looked who leads.
const LOOK: Duration = Duration::from_millis(2);
/// When a round is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a channel that connects when it is used.
pub(crate) fn lazy(url: &str) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(url.to_owned())?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(2))
        .tcp_nodelay(true)
        .connect_lazy())
}

/// Returns a connection, if anybody listens there.
pub(crate) async fn connect(url: &str) -> Option<Channel> {
    let endpoint = Endpoint::from_shared(url.to_owned()).ok()?;
    endpoint
        .connect_timeout(Duration::from_secs(1))
        .timeout(Duration::from_secs(1))
        .connect()
        .await
        .ok()
}

/// Makes the command that starts a process.
type Starting = Box<dyn Fn() -> anyhow::Result<Command> + Send>;

/// A member's process, ended when dropped.
pub(crate) struct Process {
    child: Child,
    again: Starting,
}

impl Process {
    /// Starts `first`; later `again` starts it anew.
    pub(crate) fn start(mut first: Command, again: Starting) -> anyhow::Result<Self> {
        let child = first.spawn().context("failed to start a member")?;
        Ok(Self { child, again })
    }

    /// Ends it with SIGKILL.
    fn kill(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        let mut command = (self.again)()?;
        self.child = command.spawn().context("failed to start a member again")?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A client that writes, again and again, with a connection policy of its own.
pub(crate) trait Client: Send + 'static {
    /// Writes once, however many attempts that takes; returns when the attempt was begun that was
    /// acknowledged.
    fn write(&mut self) -> impl Future<Output = anyhow::Result<Instant>> + Send;
}

/// Three members.
pub(crate) trait Group {
    type Client: Client;
    /// What is measured, for people.
    const NAME: &'static str;

    fn members(&mut self) -> &mut [Process];

    /// Returns who leads, as this member has it.
    async fn leader(&self, asked: usize) -> Option<usize>;

    /// Returns whether all members have applied all that is committed.
    async fn is_level(&self) -> bool;

    fn client(&self, number: usize) -> anyhow::Result<Self::Client>;

    /// Takes back what clients wrote.
    async fn clear(&self, clients: Vec<Self::Client>) -> anyhow::Result<()>;
}

/// What one round showed.
pub(crate) struct Round {
    /// When another member took itself or another one for the leader, from the kill on.
    pub(crate) elected: Duration,
    /// When each client's first write was acknowledged that was sent after the kill.
    pub(crate) written: Vec<Duration>,
}

/// Waits until all members are there and level.
pub(crate) async fn settled<G: Group>(group: &G) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !group.is_level().await {
        ensure!(
            begun.elapsed() < PATIENCE,
            "{}: the members are not level",
            G::NAME
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Kills the leader under load, and waits until all clients have written again.
pub(crate) async fn round<G: Group>(group: &mut G, clients: usize) -> anyhow::Result<Round> {
    settled(group).await?;
    let leader = group.leader(0).await.context("somebody leads")?;
    let killed: Arc<OnceLock<Instant>> = Arc::default();
    let mut writing = JoinSet::new();
    for number in 0..clients {
        let (mut client, killed) = (group.client(number)?, killed.clone());
        writing.spawn(async move {
            loop {
                let begun = client.write().await?;
                if let Some(killed) = killed.get()
                    && begun > *killed
                {
                    return anyhow::Ok((killed.elapsed(), client));
                }
            }
        });
    }
    tokio::time::sleep(LEAD_IN + Duration::from_millis(rand::random_range(0..200))).await;
    let at = Instant::now();
    group.members()[leader].kill();
    killed.set(at).expect("it is killed once");
    let elected = elected(group, leader, at).await?;
    let (mut written, mut done) = (Vec::new(), Vec::new());
    while let Some(client) = writing.join_next().await {
        let (after, client) = client??;
        written.push(after);
        done.push(client);
    }
    group.members()[leader].restart()?;
    settled(group).await?;
    group.clear(done).await?;
    Ok(Round { elected, written })
}

async fn elected<G: Group>(group: &G, lost: usize, at: Instant) -> anyhow::Result<Duration> {
    loop {
        for asked in (0..MEMBERS).filter(|asked| *asked != lost) {
            if group.leader(asked).await.is_some_and(|now| now != lost) {
                return Ok(at.elapsed());
            }
        }
        ensure!(at.elapsed() < PATIENCE, "{}: nobody was elected", G::NAME);
        tokio::time::sleep(LOOK).await;
    }
}
