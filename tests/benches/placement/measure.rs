//! Closed loops of calls to a server, with the CPU time that the server took for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use berth_tests::measure::figures::Figures;
use bytes::Bytes;

use crate::cpu;
use crate::rest::{Ask, Client};

/// How long a single call may take.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(30);

/// A server that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) processes: Vec<u32>,
}

/// What came of one phase.
pub(crate) struct Measured {
    pub(crate) figures: Figures,
    /// CPU time of the server's processes for each call.
    pub(crate) cpu: Duration,
    /// The last answer.
    pub(crate) last: Bytes,
}

impl Measured {
    /// `cpu` is what all calls together took.
    pub(crate) fn new(figures: Figures, cpu: Duration, last: Bytes) -> Self {
        let calls = u32::try_from(figures.calls()).unwrap_or(u32::MAX).max(1);
        Self {
            figures,
            cpu: cpu / calls,
            last,
        }
    }

    /// Returns the CPU time of a call in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6
    }
}

/// Makes the call with this number for the client with that one.
pub(crate) type Make = dyn Fn(usize, u64) -> Ask + Send + Sync;

/// Has `clients` clients call one after another for `time`, once at least.
pub(crate) async fn measure(
    server: &Server,
    clients: usize,
    time: Duration,
    make: Arc<Make>,
) -> anyhow::Result<Measured> {
    let before = cpu::time_of(&server.processes);
    let start = Instant::now();
    let tasks = (0..clients).map(|client| {
        let (make, address) = (make.clone(), server.address.clone());
        tokio::spawn(call(address, client, start, time, make))
    });
    let tasks: Vec<_> = tasks.collect();
    let (mut figures, mut last) = (Figures::new(), Bytes::new());
    for task in tasks {
        let (own, body) = task.await??;
        figures.add(&own);
        last = body;
    }
    figures.end(start.elapsed());
    let cpu = cpu::time_of(&server.processes).saturating_sub(before);
    Ok(Measured::new(figures, cpu, last))
}

async fn call(
    address: String,
    client: usize,
    start: Instant,
    time: Duration,
    make: Arc<Make>,
) -> anyhow::Result<(Figures, Bytes)> {
    let mut connection = Client::new(&address);
    let (mut figures, mut last) = (Figures::new(), Bytes::new());
    for number in 0.. {
        let ask = make(client, number);
        let begun = Instant::now();
        let answer = tokio::time::timeout(CALL_MAX, connection.ask(&ask));
        let answer = answer
            .await
            .with_context(|| format!("{} took longer than {CALL_MAX:?}", ask.path))??;
        figures.record(begun.elapsed());
        if !answer.status.is_success() {
            // Says why, and ends the measurement: there is nothing that may fail.
            answer.json()?;
        }
        last = answer.body;
        if start.elapsed() >= time {
            break;
        }
    }
    Ok((figures, last))
}

/// Asks the same thing again and again.
pub(crate) async fn repeat(
    server: &Server,
    path: &str,
    time: Duration,
) -> anyhow::Result<Measured> {
    let ask = Ask::get(path);
    let make: Arc<Make> = Arc::new(move |_, _| ask.clone());
    // The first call may find caches empty, which matters where calls are short.
    let first = measure(server, 1, Duration::ZERO, make.clone()).await?;
    if first.figures.quantile_ms(0.5) > time.as_secs_f64() * 1000.0 {
        return Ok(first);
    }
    measure(server, 1, time, make).await
}
