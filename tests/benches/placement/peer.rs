//! The peer: a real OpenStack Placement under uWSGI, on MariaDB or sqlite.
//!
//! As an operator runs it: one worker for each CPU, a database that synchronises each commit
//! (the default of both), no Keystone. Not tuned otherwise.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use berth_tests::measure::ports::free_ports;
use serde_json::json;

use crate::rest::{Ask, Client};
use crate::world::{CUSTOM_TRAITS, DEVICE, Provider};

/// Where Placement keeps its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// MariaDB's server, over TCP
    Mariadb,
    /// A file
    Sqlite,
}

/// Workers of uWSGI: one for each CPU.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where OpenStack's programs are installed.
pub(crate) fn environment() -> PathBuf {
    let cache = std::env::var_os("BERTH_TEST_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from("/var/cache/berth-tests"));
    cache.join("placement/bin")
}

/// Says what is missing to run a Placement.
pub(crate) fn missing(engine: Engine) -> Option<String> {
    let uwsgi = environment().join("uwsgi");
    if !uwsgi.exists() {
        return Some(format!("{} is missing: run .ci/install", uwsgi.display()));
    }
    let installed = Command::new("mariadbd")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match (engine, installed) {
        (Engine::Mariadb, Err(_)) => Some("mariadbd is missing: run .ci/install".to_owned()),
        (Engine::Mariadb, Ok(_)) | (Engine::Sqlite, _) => None,
    }
}

/// A process that ends when it is dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.spawn();
        Ok(Self(child.with_context(|| {
            format!("failed to start {}", command.get_program().display())
        })?))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A database server for Placements.
pub(crate) struct Database {
    folder: PathBuf,
    /// The process and its port; sqlite has none.
    server: Option<(Running, u16)>,
}

impl Database {
    /// Starts one with its data below `folder`.
    pub(crate) fn start(folder: &Path, engine: Engine) -> anyhow::Result<Self> {
        let folder = folder.join("placement");
        fs::create_dir(&folder)?;
        let server = match engine {
            Engine::Sqlite => None,
            Engine::Mariadb => Some(start_mariadb(&folder)?),
        };
        Ok(Self { folder, server })
    }

    /// Makes an empty database, and returns where it is.
    fn create(&self, name: &str) -> anyhow::Result<String> {
        let Some((_, port)) = &self.server else {
            return Ok(format!("sqlite:///{}", self.folder.join(name).display()));
        };
        let server = format!("mysql+pymysql://root@127.0.0.1:{port}");
        let create = "import sys, sqlalchemy\n\
                      engine = sqlalchemy.create_engine(sys.argv[1])\n\
                      engine.connect().execute(sqlalchemy.text('create database ' + sys.argv[2]))";
        let python = environment().join("python");
        // The server takes connections some time after it started.
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let made = Command::new(&python)
                .args(["-c", create, &server, name])
                .output()?;
            if made.status.success() {
                return Ok(format!("{server}/{name}"));
            }
            ensure!(
                Instant::now() < deadline,
                "MariaDB makes no database: {}",
                String::from_utf8_lossy(&made.stderr)
            );
        }
    }
}

fn start_mariadb(folder: &Path) -> anyhow::Result<(Running, u16)> {
    let data = folder.join("mariadb");
    let made = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal"])
        .args(["--skip-test-db", "--user=root"])
        .arg(format!("--datadir={}", data.display()))
        .output()
        .context("failed to run mariadb-install-db")?;
    ensure!(
        made.status.success(),
        "mariadb-install-db failed: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    let port = free_ports(1)?[0];
    let mut command = Command::new("mariadbd");
    command
        .args(["--no-defaults", "--user=root", "--bind-address=127.0.0.1"])
        .arg(format!("--datadir={}", data.display()))
        .arg(format!("--socket={}", folder.join("socket").display()))
        .arg(format!("--port={port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok((Running::start(&mut command)?, port))
}

/// A running Placement.
pub(crate) struct Peer {
    uwsgi: Running,
    database: Option<u32>,
    address: String,
    connection: String,
}

impl Peer {
    /// Starts one on an empty database of this name, and waits until it answers.
    pub(crate) async fn start(database: &Database, name: &str) -> anyhow::Result<Self> {
        let connection = database.create(name)?;
        let folder = database.folder.join(format!("{name}.conf"));
        fs::create_dir(&folder)?;
        let configuration = format!(
            "[api]\nauth_strategy = noauth2\n[placement_database]\nconnection = {connection}\n\
             sync_on_startup = True\n"
        );
        fs::write(folder.join("placement.conf"), configuration)?;
        let address = format!("127.0.0.1:{}", free_ports(1)?[0]);
        let log = fs::File::create(folder.join("log"))?;
        let mut command = Command::new(environment().join("uwsgi"));
        command
            .args(["--http", &address, "--http-keepalive=60"])
            .args(["--module", "placement.wsgi.api:application"])
            .args(["--master", "--need-app", "--disable-logging"])
            .args(["--processes", &workers().to_string()])
            .args(["--buffer-size", "65535", "--http-timeout", "600"])
            // Workers of a master that was killed shall not stay.
            .arg("--no-orphans")
            .env("OS_PLACEMENT_CONFIG_DIR", &folder)
            .stdout(log.try_clone()?)
            .stderr(log);
        let peer = Self {
            uwsgi: Running::start(&mut command)?,
            database: database.server.as_ref().map(|(server, _)| server.id()),
            address,
            connection,
        };
        peer.wait(&folder.join("log")).await?;
        peer.define().await?;
        Ok(peer)
    }

    async fn wait(&self, log: &Path) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let answer = Client::new(&self.address).ask(&Ask::get("/traits")).await;
            if answer.is_ok_and(|answer| answer.status.is_success()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let told = fs::read_to_string(log).unwrap_or_default();
        bail!("Placement did not answer within a minute:\n{told}")
    }

    /// Makes the names that are not standard.
    async fn define(&self) -> anyhow::Result<()> {
        let mut client = Client::new(&self.address);
        for name in CUSTOM_TRAITS {
            let path = format!("/traits/{name}");
            client.ask(&Ask::put(path)).await?.json()?;
        }
        let path = format!("/resource_classes/{DEVICE}");
        client.ask(&Ask::put(path)).await?.json()?;
        Ok(())
    }

    /// Adds providers, straight into its database.
    pub(crate) fn fill(&self, providers: &[Provider]) -> anyhow::Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/placement/fill.py");
        let mut filling = Command::new(environment().join("python"))
            .arg(script)
            .arg(&self.connection)
            .stdin(Stdio::piped())
            .spawn()?;
        let mut input = filling.stdin.take().context("it has an input")?;
        for provider in providers {
            let line = json!({
                "uuid": provider.id,
                "name": provider.name,
                "parent": provider.parent,
                "root": provider.root,
                "inventories": provider.inventories(),
                "traits": provider.traits,
                "aggregates": provider.aggregates,
            });
            writeln!(input, "{line}")?;
        }
        drop(input);
        ensure!(
            filling.wait()?.success(),
            "Placement's database was not filled"
        );
        Ok(())
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the processes that serve, the database's included.
    pub(crate) fn processes(&self) -> Vec<u32> {
        std::iter::once(self.uwsgi.id())
            .chain(self.database)
            .collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // uWSGI's master ends its workers when it is asked to; killed, it would leave them.
        let ask = Command::new("kill")
            .args(["-INT", &self.uwsgi.id().to_string()])
            .status();
        if ask.is_ok_and(|status| status.success()) {
            let _ = self.uwsgi.0.wait();
        }
    }
}
