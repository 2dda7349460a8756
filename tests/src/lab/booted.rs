//! A machine of a lab that has booted Debian's systemd, from a root of its own.
//!
//! What it is not: an emulated machine. It has the kernel of this one.
//!
//! Invariant: its control groups are its own: of units with the same names on several machines each systemd
//! sees and ends its own alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::image::cache_directory;
use super::machine::Machine;
use super::prerequisites::Missing;
use super::process::{Process, children_of};

/// How long systemd may take to boot.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the control groups of a machine that is off may take to go.
const REMOVAL: Duration = Duration::from_secs(10);
/// How often it is looked at.
const GLANCE: Duration = Duration::from_millis(100);

/// Enters control groups of its own, and boots. Arguments: the directory of the machine, the name of the
/// control groups, and what [`BOOT`] takes.
const ENTER: &str = r#"
set -eu
state=$1 group=$2
for kind in "cgroup none,name=systemd" "cgroup2 rw"; do
    set -- $kind "$@"
    place=$state/$1
    mkdir -p "$place"
    if mount -t "$1" -o "$2" "$1" "$place"; then
        mkdir "$place/$group"
        echo $$ >"$place/$group/cgroup.procs"
    fi
    shift 2
done
shift 2
exec unshare --mount --pid --cgroup --fork --kill-child -- bash -c "$BOOT" bash "$state" "$@"
"#;

/// Makes the root ready and becomes systemd. Arguments: the directory of the machine, the root, a directory that
/// is to be seen as `/root/packages`.
const BOOT: &str = r#"
set -eu
state=$1 root=$2 packages=$3
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
for place in run tmp dev; do mount -t tmpfs tmpfs "$root/$place"; done
mkdir -p "$root/dev/pts" "$root/dev/shm" "$root$state" "$root/root/packages"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount --bind "$state" "$root$state"
mount --bind "$packages" "$root/root/packages"
cat /etc/hosts >"$root/etc/hosts"
cat /proc/sys/kernel/hostname >"$root/etc/hostname"
if grep -q name=systemd /proc/self/cgroup; then
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd" "$root/sys/fs/cgroup/unified"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
else
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi
# Not chroot: in one no namespace of users can be made, which confined services have.
mkdir "$root/before"
cd "$root"
pivot_root . before
umount -l /before
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
"#;

/// A machine that has booted; it is off when this is dropped.
#[derive(Debug)]
pub struct Booted {
    name: String,
    directory: PathBuf,
    /// The process of systemd, as the test sees it.
    pid: u32,
    group: String,
    /// What waits for it.
    process: Process,
}

/// Returns the archive of a Debian with systemd.
#[must_use]
pub fn debian_archive() -> PathBuf {
    cache_directory().join("debian.tar")
}

/// Looks for what it takes.
pub(super) fn prerequisites() -> Result<(), Missing> {
    let path = debian_archive();
    if !path.is_file() {
        let reason = format!("there is no Debian to boot at {}", path.display());
        return Err(Missing::package(reason));
    }
    let mut mount = Command::new("unshare");
    let mount = mount.args(["--mount", "mount", "-t", "cgroup2", "cgroup2", "/mnt"]);
    let mounted = mount.stdin(Stdio::null()).stderr(Stdio::null()).status();
    match mounted.is_ok_and(|status| status.success()) {
        true => Ok(()),
        // In a container that keeps them for itself nothing that is installed helps.
        false => Err(Missing {
            is_required: false,
            ..Missing::new("control groups cannot be mounted on this machine")
        }),
    }
}

impl Booted {
    /// Boots on a machine, with a directory that is seen there as `/root/packages`.
    ///
    /// # Errors
    ///
    /// Why it does not boot.
    pub fn boot(machine: &Machine, packages: &Path) -> Result<Self> {
        let directory = machine.directory().to_owned();
        let root = directory.join("root");
        fs::create_dir(&root)?;
        let unpacked = Command::new("tar")
            .arg("-C")
            .arg(&root)
            .arg("-xf")
            .arg(debian_archive())
            .status()?;
        ensure!(
            unpacked.success(),
            "{} cannot be unpacked",
            debian_archive().display()
        );
        let lab = directory.parent().and_then(Path::file_name);
        let lab = lab.context("a lab has a directory")?.to_string_lossy();
        let group = format!("{lab}-{}", machine.name());
        let shown = |path: &Path| path.display().to_string();
        let (state, from) = (shown(&directory), shown(packages));
        let root = shown(&root);
        let arguments = ["bash", "-c", ENTER, "bash", &state, &group, &root, &from];
        let process = machine.spawn_with("systemd", &arguments, &[("BOOT", BOOT)])?;
        let mut booted = Self {
            name: machine.name().to_owned(),
            directory,
            pid: 0,
            group,
            process,
        };
        booted.await_systemd()?;
        Ok(booted)
    }

    fn await_systemd(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            if self.pid == 0 {
                self.pid = self.systemd()?.unwrap_or(0);
            } else {
                // "degraded" where a unit of Debian's does not work in namespaces.
                let state = self
                    .command("systemctl")
                    .arg("is-system-running")
                    .output()?;
                let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
                if ["running", "degraded"].contains(&state.as_str()) {
                    return Ok(());
                }
            }
            if begun.elapsed() > PATIENCE || !self.process.is_running() {
                bail!("{} does not boot: {}", self.name, self.process.log());
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Returns the process of systemd: a child of what the test has started, which was replaced by `unshare`.
    fn systemd(&self) -> Result<Option<u32>> {
        let Some(unshare) = self.process.pid() else {
            return Ok(None);
        };
        let children = children_of(unshare)?.into_iter();
        let mut systemd = children.filter(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "systemd")
        });
        Ok(systemd.next())
    }

    /// Returns what the services of Berth have logged.
    fn journal(&self) -> String {
        let mut journal = self.command("journalctl");
        let journal = journal.args(["--no-pager", "--lines=60", "--unit=berth-*"]);
        let printed = journal.output().map(|output| output.stdout);
        let printed = printed.unwrap_or_default();
        format!("{}: {}", self.name, String::from_utf8_lossy(&printed))
    }

    /// Returns the machine's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a directory that the test and the machine see under the same path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a command that runs `program` there, as a login of root would; arguments are added to it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.pid))
            .args(["--mount", "--uts", "--net", "--ipc", "--pid", "--cgroup"])
            .args(["--root", "--wd=/", "--", program])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// Removes a control group, from the inside out; returns whether it is gone.
fn remove_group(group: &Path) -> bool {
    let mut find = Command::new("find");
    let find = find.arg(group).args(["-depth", "-type", "d", "-delete"]);
    let _ = find.stderr(Stdio::null()).status();
    !group.is_dir()
}

impl Drop for Booted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.journal());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let hierarchies = ["systemd", "unified", ""].iter();
        let groups = hierarchies.map(|one| Path::new("/sys/fs/cgroup").join(one).join(&self.group));
        for group in groups.filter(|group| group.is_dir()) {
            let begun = Instant::now();
            // The kernel is still ending what was in it.
            while !remove_group(&group) && begun.elapsed() < REMOVAL {
                std::thread::sleep(GLANCE);
            }
        }
    }
}
