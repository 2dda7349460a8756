//! A machine with a watchdog and a hypervisor in it, emulated: when no process feeds the watchdog, QEMU
//! resets the machine, whatever its kernel is doing.
//!
//! ```text
//!   this machine                     QEMU: 2 CPUs, the timer of the ICH9 as /dev/watchdog0
//!     scheduler ◀─ gate ◀── 10.0.2.2 ── agent ── libvirtd ── guests that QEMU emulates again
//!     conductor ── 127.0.0.1:port ───────▶
//!     test ── second serial line ───▶ shell
//! ```
//!
//! What it is not: fast. Its disk is never written, so that it comes up after a reset as it did before.
//!
//! Invariant: the machine ends when this is dropped.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::super::image;
use super::super::process::wait_until;
use super::{Running, root, wdat};

/// The watchdog's driver, which gets the timeout as a parameter when it is loaded.
const DRIVER: &str = "wdat_wdt";

/// Where the machine has all programs of Berth in one.
const PROGRAMS: &str = "/lab/berth-programs";

/// What QEMU says when the watchdog has run out.
const BITTEN: &str = "\"WATCHDOG\"";

/// How long an answer of the shell may take: the machine may be busy, or be booting.
const PATIENCE: Duration = Duration::from_secs(240);

/// The disk of such machines; any number of them can run from it.
#[derive(Debug)]
pub struct WatchedDisk {
    kernel: PathBuf,
    image: PathBuf,
    table: PathBuf,
    directory: tempfile::TempDir,
}

/// A machine that runs.
#[derive(Debug)]
pub struct Watched {
    machine: Running,
    console: PathBuf,
    shell: UnixStream,
    /// What the shell has said.
    answers: Arc<Mutex<Vec<String>>>,
    events: Arc<Mutex<Vec<String>>>,
    advertised: String,
    commands: u32,
}

impl WatchedDisk {
    /// Makes the disk with this program of Berth's, and a guest that counts.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn make(programs: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("berth-watched-")
            .tempdir()?;
        let kernel = image::find_kernel()?;
        let files = ["counter", "nothing", DRIVER].map(|name| directory.path().join(name));
        let [guest, nothing, driver] = files;
        super::counting_guest(&guest)?;
        let modules = kernel.modules(&[DRIVER])?;
        let (_, module) = modules.last().context("the kernel has no wdat_wdt")?;
        fs::write(&driver, module)?;
        // The loader wants something to load beside the kernel.
        fs::write(&nothing, "nothing")?;
        let content = root::Content {
            kit: &root::Kit::watched(),
            programs: &[(programs.to_owned(), PROGRAMS.to_owned())],
            files: &[
                (guest, "/lab/images/counter".to_owned()),
                (nothing, "/lab/images/nothing".to_owned()),
                (driver, "/lab/watchdog.ko".to_owned()),
            ],
            command: include_str!("watched.sh"),
        };
        let image = root::make(directory.path(), &kernel, &content)?;
        let table = directory.path().join("wdat");
        fs::write(&table, wdat::table())?;
        Ok(Self {
            kernel: kernel.image,
            image,
            table,
            directory,
        })
    }

    /// Starts a machine with this name, whose watchdog runs out after so many seconds. Its agent asks
    /// the scheduler at that port of this machine's loopback.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start(&self, host: &str, timeout_s: u32, scheduler_port: u16) -> Result<Watched> {
        let files = |name: &str| self.directory.path().join(format!("{host}-{name}"));
        let (console, shell, monitor) = (files("console"), files("shell"), files("monitor"));
        // QEMU binds it a moment later.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let advertised = format!("127.0.0.1:{port}");
        let parameters = format!(
            "HOST={host} ADVERTISE={advertised} SCHEDULER=10.0.2.2:{scheduler_port} \
             TIMEOUT={timeout_s}"
        );
        let mut machine = Running(self.qemu(&parameters, port, &console, &shell, &monitor)?);
        let connect = |machine: &mut Running, path: &Path| {
            wait_until(PATIENCE, || {
                ensure!(machine.0.try_wait()?.is_none(), "QEMU has ended");
                Ok(UnixStream::connect(path).ok())
            })
        };
        let shell = connect(&mut machine, &shell)?;
        let answers = collect(shell.try_clone()?);
        let mut monitor = connect(&mut machine, &monitor)?;
        monitor.write_all(b"{\"execute\":\"qmp_capabilities\"}\n")?;
        let events = collect(monitor);
        Ok(Watched {
            machine,
            console,
            shell,
            answers,
            events,
            advertised,
            commands: 0,
        })
    }

    fn qemu(
        &self,
        parameters: &str,
        port: u16,
        console: &Path,
        shell: &Path,
        monitor: &Path,
    ) -> Result<Child> {
        let mut qemu = Command::new("qemu-system-x86_64");
        let drive = format!(
            "if=none,id=root,format=raw,cache=unsafe,snapshot=on,file={}",
            self.image.display()
        );
        let network = format!("user,id=net,hostfwd=tcp:127.0.0.1:{port}-:7300");
        qemu.args(["-accel", "tcg,thread=multi", "-machine", "q35"])
            .args(["-m", "768", "-smp", "2"])
            .args(["-global", "ICH9-LPC.noreboot=false"])
            .args(["-action", "watchdog=reset", "-acpitable"])
            .arg(format!("file={}", self.table.display()))
            .args(["-drive", &drive, "-device", "nvme,serial=root,drive=root"])
            .args(["-netdev", &network])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .args(["-display", "none", "-nodefaults", "-no-user-config"])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .arg("-serial")
            .arg(format!("unix:{},server=on,wait=off", shell.display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", monitor.display()))
            .arg("-kernel")
            .arg(&self.kernel)
            .args(["-append"])
            .arg(format!(
                "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off root=/dev/nvme0n1 ro rootwait \
                 init=/init {parameters}"
            ))
            .stdin(Stdio::null());
        qemu.spawn().context("cannot run qemu-system-x86_64")
    }
}

/// Collects the lines that come, until the other end is closed.
fn collect(stream: UnixStream) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let collected = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            held(&collected).push(line);
        }
    });
    lines
}

/// Removes the kernel's lines, `[   12.345678] …`. The kernel writes to the console while a program
/// does: such a line can stand in the middle of a program's, which is whole again without it.
fn without_kernel_lines(console: &str) -> String {
    let mut text = String::with_capacity(console.len());
    let mut rest = console;
    while let Some(open) = rest.find('[') {
        text.push_str(&rest[..open]);
        rest = &rest[open..];
        let is_kernel = rest[1..]
            .split_once("] ")
            .is_some_and(|(stamp, _)| is_uptime(stamp));
        if is_kernel {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else {
            text.push('[');
            rest = &rest[1..];
        }
    }
    text + rest
}

/// Whether this is seconds since boot as the kernel prints them: `   12.345678`.
fn is_uptime(stamp: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let parts = stamp.trim_start().split_once('.');
    parts.is_some_and(|(seconds, micros)| {
        is_number(seconds) && micros.len() == 6 && is_number(micros)
    })
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// Returns what programs wrote to its console, in all its lives, without the kernel's lines.
    #[must_use]
    pub fn console(&self) -> String {
        let written = fs::read(&self.console).unwrap_or_default();
        without_kernel_lines(&String::from_utf8_lossy(&written).replace('\r', ""))
    }

    /// Returns how often the watchdog has reset it.
    #[must_use]
    pub fn resets(&self) -> usize {
        let events = held(&self.events);
        events.iter().filter(|event| event.contains(BITTEN)).count()
    }

    /// Returns where its agent is reached.
    #[must_use]
    pub fn advertised(&self) -> &str {
        &self.advertised
    }

    /// Waits until its console has said so, this many times.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn says(&mut self, words: &str, times: usize) -> Result<()> {
        wait_until(PATIENCE, || {
            ensure!(self.machine.0.try_wait()?.is_none(), "QEMU has ended");
            let count = self.console().matches(words).count();
            Ok((count >= times).then_some(()))
        })
        .with_context(|| format!("the console does not say {words:?} {times} times"))
    }

    /// Types something into its shell, without waiting for anything.
    ///
    /// # Errors
    ///
    /// When no shell reads it.
    pub fn types(&mut self, command: &str) -> Result<()> {
        Ok(writeln!(self.shell, "{command}")?)
    }

    /// Has its shell run a command, and returns the words that it printed. A machine that is reset
    /// meanwhile does not answer.
    ///
    /// # Errors
    ///
    /// When there is no answer.
    pub fn ask(&mut self, command: &str) -> Result<String> {
        self.commands += 1;
        let mark = format!("answer {}:", self.commands);
        self.types(&format!("echo '{mark}' $({command} 2>&1) >/dev/ttyS1"))?;
        wait_until(PATIENCE, || {
            let answers = held(&self.answers);
            let answer = answers.iter().find_map(|line| line.strip_prefix(&mark));
            Ok(answer.map(|answer| answer.trim().to_owned()))
        })
        .with_context(|| format!("the machine does not answer {command:?}"))
    }

    /// Returns for how many seconds it has been running, by its own clock.
    ///
    /// # Errors
    ///
    /// When it does not say.
    pub fn uptime_s(&mut self) -> Result<f64> {
        let uptime = self.ask("cut -d' ' -f1 /proc/uptime")?;
        uptime
            .parse()
            .with_context(|| format!("not a time: {uptime}"))
    }
}

#[cfg(test)]
mod tests {
    use super::without_kernel_lines;

    /// Goal: what a program wrote is found though the kernel wrote into the middle of it.
    #[test]
    fn a_kernel_line_does_not_split_a_programs_line() {
        let console = "[    0.1] is no uptime\n[   12.812876] watchdog: watchdog0: started\n\
            runs on: thi[   51.861155] watchdog: watchdog0: did not stop!\ns machine is RESET\n\
            list [1] of two\n[    9.704797] cut off";
        assert_eq!(
            without_kernel_lines(console),
            "[    0.1] is no uptime\nruns on: this machine is RESET\nlist [1] of two\n"
        );
    }
}
