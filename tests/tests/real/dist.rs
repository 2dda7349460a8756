//! What `deploy/packages/build` makes: the same bytes again, checksums, manual pages, bills of materials.
//!
//! Not here: packages that are installed, see `packages`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::PROGRAMS;
use crate::packages::{build, run};

/// Goal: what is released is the same wherever it is made, and whole. Method: it is made twice of the same programs, in
/// different places; each of its parts is looked at with the tool that its users have.
///
/// The programs are small ones of this machine under the names of ours: packages of ours take a minute to look at.
pub(crate) fn what_is_made_is_sound() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = small_programs(&folder.path().join("programs"));
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let made = build(&programs, &one);
    let names: BTreeSet<String> = made.iter().map(|path| name(path)).collect();
    assert_eq!(
        names,
        files(&one),
        "all that is made is named, and nothing else"
    );
    same_bytes(&one, &build(&programs, &other));
    let sums = checksums(&one);
    let packages: Vec<&PathBuf> = made
        .iter()
        .filter(|path| name(path).ends_with(".deb"))
        .collect();
    assert_eq!(packages.len(), 5);
    sound_for_debian(&packages);
    for package in packages {
        let root = folder.path().join(format!("{}.root", name(package)));
        let _ = run(Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package)
            .arg(&root));
        pages(&root);
    }
    bills(&one, &sums);
}

/// Puts a program of this machine under the name of each of ours, beside the one that describes ours.
fn small_programs(folder: &Path) -> PathBuf {
    fs::create_dir(folder).expect("a folder");
    for program in [
        "berth",
        "berth-compute-agent",
        "berth-conductor",
        "berth-csi-controller",
        "berth-csi-operator",
        "berth-scheduler",
    ] {
        let _ = fs::copy("/bin/echo", folder.join(program)).expect("a copy");
    }
    let described = folder.join("berth-dist");
    std::os::unix::fs::symlink(PROGRAMS, described).expect("a link");
    folder.to_owned()
}

fn name(path: &Path) -> String {
    path.file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned()
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| name(&entry.expect("an entry").path()))
        .collect()
}

/// Fails unless each of these files has the bytes of the one of its name in the folder.
fn same_bytes(folder: &Path, others: &[PathBuf]) {
    for other in others {
        let is_equal = Command::new("cmp")
            .arg(folder.join(name(other)))
            .arg(other)
            .status();
        assert!(
            is_equal.expect("cmp runs").success(),
            "{} differs",
            name(other)
        );
    }
}

/// Returns the sums of all files but the list of them, which are right.
fn checksums(folder: &Path) -> BTreeMap<String, String> {
    let mut check = Command::new("sha256sum");
    let check = check.args(["--check", "--strict", "--quiet", "SHA256SUMS"]);
    let _ = run(check.current_dir(folder));
    let list = fs::read_to_string(folder.join("SHA256SUMS")).expect("the list");
    let sums = list.lines().map(|line| {
        let (sum, file) = line.split_once("  ").expect("a sum and a file");
        (file.to_owned(), sum.to_owned())
    });
    let sums: BTreeMap<String, String> = sums.collect();
    let mut all = files(folder);
    all.remove("SHA256SUMS");
    assert_eq!(sums.keys().cloned().collect::<BTreeSet<_>>(), all);
    sums
}

/// Goal: packages are as Debian's policy has them. Method: lintian finds neither errors nor warnings but those that
/// the packages override.
fn sound_for_debian(packages: &[&PathBuf]) {
    let mut lintian = Command::new("lintian");
    let lintian = lintian.args([
        "--allow-root",
        "--fail-on",
        "error,warning",
        "--suppress-tags",
    ]);
    // Those of a release are compressed.
    let lintian =
        lintian.arg("uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball");
    let _ = run(lintian.args(packages));
}

/// Goal: each program of a package has a page there, and `man` shows all pages without a warning.
fn pages(root: &Path) {
    let manual = root.join("usr/share/man");
    let mut of_package = Vec::new();
    for section in files(&manual) {
        let pages = files(&manual.join(&section));
        of_package.extend(
            pages
                .into_iter()
                .map(|page| manual.join(&section).join(page)),
        );
    }
    for program in files(&root.join("usr/bin")) {
        let starts = ["1", "8"].map(|section| format!("{program}.{section}.gz"));
        let has_page = of_package.iter().any(|page| starts.contains(&name(page)));
        assert!(has_page, "{program} has no page: {of_package:?}");
    }
    let mut man = Command::new("man");
    let man = man.args(["--warnings", "--local-file", "--encoding=UTF-8"]);
    let shown = man
        .args(&of_package)
        .env("LC_ALL", "C.UTF-8")
        .env("MANWIDTH", "80");
    let shown = shown.output().expect("man runs");
    let warnings = String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success() && warnings.is_empty(), "{warnings}");
}

/// Goal: each package comes with its bill, which names the very file.
fn bills(folder: &Path, sums: &BTreeMap<String, String>) {
    for file in sums.keys().filter(|file| !file.ends_with(".cdx.json")) {
        let bill = folder.join(format!("{file}.cdx.json"));
        let bill = fs::read_to_string(&bill).unwrap_or_else(|error| panic!("{file}: {error}"));
        let bill: Value = serde_json::from_str(&bill).expect("JSON");
        let of = &bill["metadata"]["component"];
        assert_eq!(of["hashes"][0]["content"], sums[file].as_str(), "{file}");
        let components = bill["components"].as_array().expect("components");
        assert!(components.len() > 100, "{file}: {}", components.len());
    }
}
