//! Berth's face of Placement beside a real OpenStack Placement: latency and CPU time of the same
//! calls, in the same run, as ratios; claims beside etcd's puts; and how cost grows.
//!
//! Goal: know how much faster the same answers are, what a durable claim costs, and that nothing
//! grows faster than what there is. Method: real processes on one machine, both filled with the
//! same providers, closed loops of calls over HTTP. CPU time is that of all processes that serve:
//! of Placement uWSGI and MariaDB, of Berth all members. Not a test: it passes no judgement,
//! except that both servers must find the same candidates.
//!
//! All parts are made to take under six minutes on two cores that nobody else uses; no phase waits
//! longer than half a minute for a single answer.
//!
//! ```text
//! cargo bench -p berth-tests --bench placement -- [--only candidates,nested,wide,claims,growth]
//!     [--seconds N] [--hosts 1000,5000,10000] [--growth 1000,10000,100000] [--members 3]
//!     [--database mariadb|sqlite] [--without-placement] [--scheduler PROGRAM]
//! ```

mod berth;
mod claims;
mod compare;
mod cpu;
mod growth;
mod measure;
mod peer;
mod rest;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use berth::Berth;
use clap::Parser;
use peer::{Database, Engine};

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Allocation candidates over flat hosts
    Candidates,
    /// Two isolated groups over trees with 8 NUMA cells
    Nested,
    /// One host with 8 devices of one unit
    Wide,
    /// Claims, durable
    Claims,
    /// Berth alone, from small to large
    Growth,
}

/// What to measure.
#[derive(Debug, Parser)]
struct Options {
    /// Parts to run; all of them unless said
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Seconds of each measured phase; a phase of Placement may take three times as long
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Flat hosts among which candidates are looked for
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,10000")]
    hosts: Vec<usize>,
    /// Providers of the part about growth
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    growth: Vec<usize>,
    /// Client counts of the part about claims
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    clients: Vec<usize>,
    /// Berth's members
    #[arg(long, default_value_t = 3)]
    members: usize,
    /// Where Placement keeps its rows
    #[arg(long, value_enum, default_value = "mariadb")]
    database: Engine,
    /// A program berth-scheduler to measure instead of the one that this program holds
    #[arg(long)]
    scheduler: Option<PathBuf>,
    /// Leave Placement out
    #[arg(long)]
    without_placement: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// What all parts share.
struct Bench {
    options: Options,
    folder: tempfile::TempDir,
    /// Absent if Placement is left out.
    database: Option<Database>,
}

impl Bench {
    fn time(&self) -> Duration {
        Duration::from_secs(self.options.seconds)
    }

    /// Starts Berth, one member or all that are wanted.
    async fn berth(&self, name: &str, members: usize) -> anyhow::Result<Berth> {
        let program = self.options.scheduler.as_deref();
        Berth::start(program, self.folder.path(), name, members).await
    }

    fn runs(&self, part: Part) -> bool {
        self.options.only.is_empty() || self.options.only.contains(&part)
    }
}

fn main() -> ExitCode {
    // The members are this program again: a benchmark has no binaries of other packages.
    if let Some(code) = berth::become_member() {
        return code;
    }
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    match runtime.block_on(run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> anyhow::Result<()> {
    let start = Instant::now();
    let folder = tempfile::Builder::new()
        .prefix("berth-placement")
        .tempdir_in(build_folder())?;
    let database = match peer::missing(options.database) {
        Some(missing) => {
            println!("Placement is left out: {missing}\n");
            None
        }
        None if options.without_placement => None,
        None => Some(Database::start(folder.path(), options.database)?),
    };
    let bench = Bench {
        options,
        folder,
        database,
    };
    if bench.runs(Part::Candidates) {
        compare::flat(&bench).await?;
    }
    if bench.runs(Part::Nested) {
        compare::nested(&bench).await?;
    }
    if bench.runs(Part::Wide) {
        compare::wide(&bench).await?;
    }
    if bench.runs(Part::Claims) {
        claims::claims(&bench).await?;
    }
    if bench.runs(Part::Growth) {
        growth::growth(&bench).await?;
    }
    eprintln!("all of it took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Returns the folder of the build: on the disk that is to be measured, not in memory.
fn build_folder() -> PathBuf {
    let program = std::env::current_exe().ok();
    let parent = program.as_deref().and_then(std::path::Path::parent);
    parent.map_or_else(std::env::temp_dir, std::path::Path::to_path_buf)
}
