//! What `deploy/packages/build` makes: the same bytes again, checksums, manual pages, bills of materials, and an
//! image that runs.
//!
//! Not here: packages that are installed, see `packages`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::processes::{Addresses, Answer, Process, eventually};
use serde_json::Value;

use crate::PROGRAMS;
use crate::packages::{build, run, shown};

/// All formats.
const ALL: &str = "deb,rpm,oci";

/// Goal: what is released is the same wherever it is made, and whole. Method: it is made twice of the same programs, in
/// different places; each of its parts is looked at with the tool that its users have.
///
/// The programs are small ones of this machine under the names of ours: packages of ours take a minute to look at.
pub(crate) fn what_is_made_is_sound() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = small_programs(&folder.path().join("programs"));
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let made = build(&programs, &one, ALL);
    let names: BTreeSet<String> = made.iter().map(|path| name(path)).collect();
    assert_eq!(
        names,
        files(&one),
        "all that is made is named, and nothing else"
    );
    same_bytes(&one, &build(&programs, &other, ALL));
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
    programs_of(Path::new("/bin/echo"), folder)
}

/// Makes a folder of a copy of a small program under the name of each of ours, and the one that describes ours.
pub(crate) fn programs_of(small: &Path, folder: &Path) -> PathBuf {
    fs::create_dir(folder).expect("a folder");
    for program in IN_IMAGE.iter().chain(&["berth-compute-agent"]) {
        let _ = fs::copy(small, folder.join(program)).expect("a copy");
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

/// The programs in the image.
const IN_IMAGE: [&str; 5] = [
    "berth",
    "berth-conductor",
    "berth-csi-controller",
    "berth-csi-operator",
    "berth-scheduler",
];

/// Goal: what a runtime unpacks has all that the programs need, and a scheduler serves there as an ordinary user.
pub(crate) fn runs_as_an_image(made: &[PathBuf], folder: &Path) {
    let archive = made.iter().find(|path| name(path).ends_with(".oci.tar"));
    let layout = folder.join("layout");
    unpack(archive.expect("an image"), &layout);
    let root = folder.join("image");
    unpack(&layer(&layout), &root);
    assert_eq!(
        files(&root.join("usr/bin")),
        IN_IMAGE.map(str::to_owned).into()
    );
    let inside = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("/usr/sbin/chroot");
        command.arg("--userspec=1000:1000").arg(&root);
        command
            .arg(format!("/usr/bin/{program}"))
            .args(arguments)
            .env_clear();
        command
    };
    for program in IN_IMAGE {
        let version = Answer::of(inside(program, &["--version"])).with_status(0);
        let expected = format!("{program} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(version.stdout, expected);
        let help = Answer::of(inside(program, &["--help"])).with_status(0);
        assert!(help.stdout.contains("Usage:"), "{}", help.stdout);
    }
    let address = Addresses::new().free();
    let data = ["--data-dir", "/var/lib/berth/scheduler", "--bootstrap"];
    let scheduler = inside(
        "berth-scheduler",
        &[&data[..], &["--listen", &address]].concat(),
    );
    let scheduler = Process::start(scheduler, &folder.join("scheduler.log"));
    eventually("a leader in the image", || {
        let status = Answer::of(inside(
            "berth",
            &["cluster", "status", "--scheduler", &address],
        ));
        let is_led = status.status == Some(0);
        is_led.then_some(()).ok_or_else(|| scheduler.log())
    });
}

fn unpack(archive: &Path, into: &Path) {
    fs::create_dir_all(into).expect("a folder");
    let mut tar = Command::new("tar");
    let tar = tar.arg("--directory").arg(into).arg("--same-owner");
    let _ = run(tar
        .args(["--preserve-permissions", "--extract", "--file"])
        .arg(archive));
}

/// Returns the one layer of an image layout, after everything that leads there: each part has the digest and the size
/// by which it is named.
fn layer(layout: &Path) -> PathBuf {
    let version: Value = parse(&layout.join("oci-layout"));
    assert_eq!(version["imageLayoutVersion"], "1.0.0");
    let index: Value = parse(&layout.join("index.json"));
    let reference = &index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"];
    assert_eq!(reference, env!("CARGO_PKG_VERSION"));
    let manifest = parse(&blob(layout, &index["manifests"][0], "manifest.v1+json"));
    let config = parse(&blob(layout, &manifest["config"], "config.v1+json"));
    assert_eq!(config["os"], "linux");
    assert_eq!(config["config"]["User"], "1000:1000");
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1));
    let layer = blob(layout, &manifest["layers"][0], "layer.v1.tar");
    // It is not compressed here, so that both digests are of the same bytes.
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        manifest["layers"][0]["digest"]
    );
    assert_eq!(files(&layout.join("blobs/sha256")).len(), 3);
    layer
}

fn parse(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", shown(file)));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", shown(file)))
}

fn blob(layout: &Path, descriptor: &Value, kind: &str) -> PathBuf {
    let media_type = format!("application/vnd.oci.image.{kind}");
    assert_eq!(descriptor["mediaType"], media_type.as_str());
    let digest = descriptor["digest"].as_str().expect("a digest");
    let digest = digest.strip_prefix("sha256:").expect("of SHA-256");
    let file = layout.join("blobs/sha256").join(digest);
    let sum = run(Command::new("sha256sum").arg(&file));
    assert!(sum.starts_with(digest), "{sum}");
    let size = fs::metadata(&file).expect("a file").len();
    assert_eq!(descriptor["size"], size);
    file
}
