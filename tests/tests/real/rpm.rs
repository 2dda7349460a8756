//! The rpm packages of `deploy/packages`: they have what the Debian packages have.
//!
//! Method: both are made of the same small programs, and installed, upgraded and removed by dpkg and by rpm in roots of
//! their own, in which `systemctl` writes down how it is called; then the roots are compared.
//!
//! What it is not: an installation where rpm packages are at home. What they depend on there is named by a table
//! (`deploy/packages/rpm`), which is compared with what is known here.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::lab::debian_archive;

use crate::dist::programs_of;
use crate::packages::{build, run};

const LAUNCHER: &str = env!("CARGO_BIN_EXE_berth-launcher");

/// Stands for systemd's command, in a root where no systemd runs.
const SYSTEMCTL: &str = "#!/bin/sh\necho \"$*\" >>/systemctl.log\n";

/// What Fedora and its relatives call what Debian's packages depend on, and recommend.
const NAMES: [(&str, &str); 6] = [
    ("adduser", "shadow-utils"),
    ("berth", "berth"),
    ("libvirt-daemon-system", "libvirt-daemon-driver-qemu"),
    ("libvirt0", "libvirt-libs"),
    ("qemu-system-x86", "qemu-kvm"),
    ("qemu-utils", "qemu-img"),
];

/// A root with a Debian, and what installs packages there.
struct Root {
    directory: PathBuf,
    packages: Vec<PathBuf>,
    is_rpm: bool,
}

pub(crate) fn they_have_what_the_debian_packages_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let launchers = programs_of(Path::new(LAUNCHER), &folder.path().join("programs"));
    let made = build(&launchers, &folder.path().join("made"), "deb,rpm");
    let root = |name: &str, is_rpm: bool| Root::unpack(&folder.path().join(name), &made, is_rpm);
    let (debian, rpm) = (root("deb", false), root("rpm", true));
    assert_eq!(rpm.packages.len(), 5);
    for (deb, rpm) in debian.packages.iter().zip(&rpm.packages) {
        names_agree(deb, rpm);
    }
    depends_on_nothing_else(&rpm);

    let both = [&debian, &rpm];
    both.iter().for_each(|root| root.install());
    assert_eq!(
        debian.files(),
        rpm.files(),
        "files, modes, owners and checksums"
    );
    assert_eq!(debian.users(), rpm.users(), "users");
    assert_eq!(rpm.users().len(), 3, "{:?}", rpm.users());
    assert_eq!(debian.calls(), rpm.calls(), "of an installation");

    for root in both {
        fs::write(root.scheduler_config(), "# mine\n").expect("a configuration file");
    }
    both.iter().for_each(|root| root.upgrade());
    assert_eq!(debian.calls(), rpm.calls(), "of an upgrade");
    for root in both {
        let config = fs::read_to_string(root.scheduler_config()).expect("it is kept");
        assert_eq!(config, "# mine\n");
        let stored = root.directory.join("var/lib/berth/scheduler");
        fs::create_dir_all(stored).expect("what a scheduler stores");
    }

    both.iter().for_each(|root| root.remove());
    assert_eq!(debian.calls(), rpm.calls(), "of a removal");
    assert_eq!(rpm.files().len(), 1, "{:?}", rpm.files());
    for root in both {
        assert!(root.directory.join("var/lib/berth/scheduler").is_dir());
    }
    let saved = rpm.scheduler_config().with_extension("toml.rpmsave");
    assert_eq!(fs::read_to_string(saved).expect("it is kept"), "# mine\n");
}

/// Goal: both kinds depend on the same, and recommend the same, each by its own names.
fn names_agree(deb: &Path, rpm: &Path) {
    let of_rpm = |what: &str| -> BTreeSet<String> {
        let printed = run(Command::new("rpm").args(["-qp", what]).arg(rpm));
        printed.lines().map(str::to_owned).collect()
    };
    for (field, what) in [("Depends", "--requires"), ("Recommends", "--recommends")] {
        let printed = run(Command::new("dpkg-deb").arg("--field").arg(deb).arg(field));
        let words = printed
            .trim()
            .split(", ")
            .filter_map(|word| word.split(' ').next());
        let named: BTreeSet<&str> = words
            .filter_map(|word| NAMES.iter().find(|(debian, _)| *debian == word))
            .map(|(_, name)| *name)
            .collect();
        let listed = of_rpm(what);
        let names = NAMES.iter().map(|(_, name)| *name);
        let listed: BTreeSet<&str> = names.filter(|name| listed.contains(*name)).collect();
        assert_eq!(listed, named, "{what} of {}", rpm.display());
    }
}

/// Goal: rpm finds what packages need of each other. Method: in an empty database only the system is missing.
fn depends_on_nothing_else(root: &Root) {
    let mut rpm = root.rpm();
    let output = rpm
        .args(["--install", "--test"])
        .args(&root.packages)
        .output();
    let output = output.expect("rpm runs");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let missing = printed
        .lines()
        .filter_map(|line| line.trim().split_once(" is needed by "));
    let missing: BTreeSet<&str> = missing.map(|(name, _)| name).collect();
    assert!(missing.contains("/bin/sh"), "{printed}");
    for name in missing {
        let is_library = name.contains(".so.") || name == "rtld(GNU_HASH)";
        let is_of_system = is_library || ["/bin/sh", "shadow-utils"].contains(&name);
        assert!(is_of_system, "{name}");
    }
}

impl Root {
    fn unpack(directory: &Path, made: &[PathBuf], is_rpm: bool) -> Self {
        fs::create_dir(directory).expect("a directory");
        let mut tar = Command::new("tar");
        let _ = run(tar
            .arg("-C")
            .arg(directory)
            .arg("-xf")
            .arg(debian_archive()));
        // As if systemd ran.
        fs::create_dir_all(directory.join("run/systemd/system")).expect("a directory");
        let systemctl = directory.join("usr/bin/systemctl");
        fs::remove_file(&systemctl).expect("there is one");
        fs::write(&systemctl, SYSTEMCTL).expect("a file");
        fs::set_permissions(systemctl, fs::Permissions::from_mode(0o755)).expect("its mode");
        let kind = if is_rpm { "rpm" } else { "deb" };
        let packages = made
            .iter()
            .filter(|path| path.extension().is_some_and(|e| e == kind));
        Self {
            directory: directory.to_owned(),
            packages: packages.cloned().collect(),
            is_rpm,
        }
    }

    fn rpm(&self) -> Command {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(&self.directory);
        rpm
    }

    fn dpkg(&self) -> Command {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root").arg(&self.directory);
        dpkg.env("DEBIAN_FRONTEND", "noninteractive");
        dpkg
    }

    fn install(&self) {
        let _ = match self.is_rpm {
            // What its database misses is there.
            true => run(self
                .rpm()
                .args(["--install", "--nodeps"])
                .args(&self.packages)),
            false => run(self.dpkg().arg("--install").args(&self.packages)),
        };
    }

    /// Upgrades to the same version.
    fn upgrade(&self) {
        let _ = match self.is_rpm {
            true => run(self
                .rpm()
                .args(["--reinstall", "--nodeps"])
                .args(&self.packages)),
            false => run(self
                .dpkg()
                .args(["--force-confold", "--install"])
                .args(&self.packages)),
        };
    }

    fn remove(&self) {
        let names = self.packages.iter().map(|path| {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            let end = name
                .find("_0")
                .or_else(|| name.find("-0"))
                .expect("a version");
            name[..end].to_owned()
        });
        let _ = match self.is_rpm {
            true => run(self.rpm().args(["--erase", "--nodeps"]).args(names)),
            false => run(self.dpkg().arg("--remove").args(names)),
        };
    }

    fn scheduler_config(&self) -> PathBuf {
        self.directory.join("etc/berth/scheduler.toml")
    }

    /// Returns the files of Berth with modes, owners and checksums, but for what only Debian has, and with the one path
    /// that differs.
    fn files(&self) -> BTreeSet<String> {
        let find = "find etc usr -path '*berth*' -type f ! -path '*/lintian/*' \
                    -printf '%m %U %G ' -exec sha256sum {} ';'";
        let mut shell = Command::new("sh");
        let printed = run(shell.args(["-ec", find]).current_dir(&self.directory));
        let paths = printed
            .lines()
            .map(|line| line.replace("vendor-completions/_", "site-functions/_"));
        paths.collect()
    }

    /// Returns the users of Berth: name, home directory and whether it can log in.
    fn users(&self) -> BTreeSet<(String, String, bool)> {
        let accounts = fs::read_to_string(self.directory.join("etc/passwd")).expect("accounts");
        let accounts = accounts.lines().filter(|line| line.starts_with("berth"));
        let users = accounts.map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let logs_in = !fields[6].ends_with("/nologin");
            (fields[0].to_owned(), fields[5].to_owned(), logs_in)
        });
        users.collect()
    }

    /// Returns how systemctl was called since this was last read.
    fn calls(&self) -> BTreeSet<String> {
        let log = self.directory.join("systemctl.log");
        let calls = fs::read_to_string(&log).expect("it was called");
        fs::remove_file(log).expect("a file");
        calls.lines().map(str::to_owned).collect()
    }
}
