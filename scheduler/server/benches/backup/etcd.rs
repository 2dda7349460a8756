//! etcd's side: one member with as many bytes, saved and restored by `etcdctl snapshot`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fault::{Outcome, fault};
use crate::group::free_ports;
use crate::process::{self, Running};

/// The bytes of a value: few large ones, which is to etcd's advantage.
const VALUE_BYTES: usize = 1 << 20;
/// The size at which etcd takes no more, in bytes; its default is a quarter of it.
const QUOTA_BYTES: u64 = 8 << 30;
const PATIENCE: Duration = Duration::from_secs(300);

/// What was measured.
pub(crate) struct Measured {
    pub(crate) save: Duration,
    pub(crate) bytes: u64,
    pub(crate) restore: Duration,
    /// From the start of a member on the restored directory until it took a write.
    pub(crate) serve: Duration,
}

/// Returns whether etcd and its client are installed.
pub(crate) fn is_installed() -> bool {
    [("etcd", "--version"), ("etcdctl", "version")]
        .into_iter()
        .all(|(program, version)| {
            let mut command = Command::new(program);
            command.arg(version).env("ETCDCTL_API", "3");
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok()
        })
}

/// Where a member is.
struct Address {
    client: String,
    peer: String,
}

/// Fills a member with so many bytes, saves and restores them.
pub(crate) async fn measure(folder: &Path, bytes: u64) -> Outcome<Measured> {
    let ports = free_ports(2)?;
    let address = Address {
        client: format!("http://127.0.0.1:{}", ports[0]),
        peer: format!("http://127.0.0.1:{}", ports[1]),
    };
    let member = address.start(folder.join("etcd-saved"))?;
    address.serving(folder).await?;
    address.fill(folder, bytes).await?;
    let file = folder.join("etcd.snapshot");
    let mut save = address.etcdctl();
    save.args(["snapshot", "save"]).arg(&file);
    let save = process::run(save).await?.took;
    let bytes = std::fs::metadata(&file)?.len();
    drop(member);
    let restored = folder.join("etcd-restored");
    let mut restore = address.etcdctl();
    let initial = format!("m0={}", address.peer);
    restore
        .args(["snapshot", "restore"])
        .arg(&file)
        .arg("--data-dir")
        .arg(&restored);
    restore.args(["--name", "m0", "--initial-cluster", &initial]);
    restore.args(["--initial-advertise-peer-urls", &address.peer]);
    let restore = process::run(restore).await?.took;
    let begun = Instant::now();
    let member = address.start(restored)?;
    address.serving(folder).await?;
    let serve = begun.elapsed();
    drop(member);
    Ok(Measured {
        save,
        bytes,
        restore,
        serve,
    })
}

impl Address {
    fn start(&self, data: PathBuf) -> Outcome<Running> {
        let mut command = Command::new("etcd");
        let Self { client, peer } = self;
        command
            .args(["--name", "m0", "--logger", "zap", "--log-level", "error"])
            .arg("--data-dir")
            .arg(data)
            .args([
                "--listen-client-urls",
                client,
                "--advertise-client-urls",
                client,
            ])
            .args([
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
            ])
            .args(["--initial-cluster", &format!("m0={peer}")])
            .args(["--quota-backend-bytes", &QUOTA_BYTES.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Running::start(command)
    }

    fn etcdctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.args(["--command-timeout=600s", "--endpoints", &self.client]);
        command
    }

    /// Writes a value of the file's bytes.
    async fn put(&self, key: &str, value: &Path) -> Outcome<()> {
        let mut command = self.etcdctl();
        command.args(["put", key]).stdin(File::open(value)?);
        process::run(command).await?;
        Ok(())
    }

    /// Waits until a member takes a write.
    async fn serving(&self, folder: &Path) -> Outcome<()> {
        let value = folder.join("value");
        std::fs::write(&value, "started")?;
        let begun = Instant::now();
        while self.put("started", &value).await.is_err() {
            if begun.elapsed() > PATIENCE {
                return Err(fault("etcd takes no write"));
            }
        }
        Ok(())
    }

    async fn fill(&self, folder: &Path, bytes: u64) -> Outcome<()> {
        let file = folder.join("value");
        for number in 0..bytes.div_ceil(VALUE_BYTES as u64) {
            // No two values are alike.
            let mut value = vec![7; VALUE_BYTES];
            value[..8].copy_from_slice(&number.to_le_bytes());
            std::fs::write(&file, &value)?;
            self.put(&format!("row/{number:012}"), &file).await?;
        }
        Ok(())
    }
}
