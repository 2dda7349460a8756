//! Data directories that are damaged, emptied, or somebody else's.

use std::fs;
use std::path::Path;

use berth_tests::processes::bench::{checkpoints, files, nothing_is_lost, used_member};
use berth_tests::processes::{Addresses, Bench, Cluster, Host, eventually, verdict};

use crate::PROGRAMS;

fn damage(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).expect("it is damaged");
}

/// Goal: one damaged checkpoint is repaired from the other and the log, and told; with both
/// damaged, and the table gone, the member refuses to make up a state.
#[test]
fn damaged_checkpoints_are_repaired_or_refused() {
    let mut cluster = used_member(PROGRAMS);
    let folder = checkpoints(&cluster);
    let table = cluster.data_dir(0).join("table");
    let found = files(&folder);
    assert_eq!(found.len(), 2, "{found:?}");

    damage(&found[1]);
    fs::remove_dir_all(&table).expect("a table");
    nothing_is_lost(&mut cluster);
    let said = cluster.schedulers[0].said();
    assert!(
        said.contains("WARN") && said.contains("checkpoint"),
        "{said}"
    );
    assert!(
        said.contains("was removed") && said.contains("the log"),
        "{said}"
    );

    cluster.keep_busy(300);
    cluster.schedulers[0].kill();
    fs::remove_dir_all(&table).expect("a table");
    let copy: Vec<_> = files(&folder);
    let whole: Vec<_> = copy
        .iter()
        .map(|file| fs::read(file).expect("a file"))
        .collect();
    for file in &copy {
        damage(file);
    }
    let said = cluster.schedulers[0].fails(&cluster.programs, 1);
    for word in ["no usable checkpoint", "Remove", "join again"] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    // It has touched nothing: with the files as they were it goes on.
    for (file, bytes) in copy.iter().zip(whole) {
        fs::write(file, bytes).expect("a file");
    }
    nothing_is_lost(&mut cluster);
}

/// Goal: a table that is empty, gone or damaged is rebuilt, and told.
#[test]
fn an_emptied_table_is_rebuilt() {
    let mut cluster = used_member(PROGRAMS);
    let table = cluster.data_dir(0).join("table");
    let ways: [fn(&Path); 3] = [
        |table| fs::remove_dir_all(table).expect("a table"),
        |table| {
            fs::remove_dir_all(table).expect("a table");
            fs::create_dir(table).expect("an empty directory");
        },
        |table| {
            files(table)
                .iter()
                .filter(|file| file.is_file())
                .for_each(|file| damage(file))
        },
    ];
    for way in ways {
        way(&table);
        nothing_is_lost(&mut cluster);
        let said = cluster.schedulers[0].said();
        assert!(said.contains("WARN") && said.contains("table"), "{said}");
        assert!(
            said.contains("rebuilt") || said.contains("deleted"),
            "{said}"
        );
        cluster.schedulers[0].kill();
    }
}

/// Goal: a directory belongs to one cluster, one member and one process.
#[test]
fn directories_are_not_mixed_up() {
    let mut first = used_member(PROGRAMS);
    let mut second = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .start();
    let id = second.json(&["cluster", "status"])["cluster_id"].clone();
    let id = id.as_str().expect("a cluster has an id").to_owned();
    let directory = first.data_dir(0).display().to_string();

    let address = second.schedulers[0].address.clone();
    let joining = ["--join", &address];
    first.schedulers[0].start_with(&first.programs, &joining);
    assert_eq!(first.schedulers[0].process().wait(), 1);
    first.schedulers[0].kill();
    let said = first.schedulers[0].said();
    for word in [&directory, "belongs to cluster", &id] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }

    first.schedulers[0].start_with(&first.programs, &["--cluster-id", &id]);
    assert_eq!(first.schedulers[0].process().wait(), 1);
    first.schedulers[0].kill();
    let said = first.schedulers[0].said();
    assert!(
        said.contains("belongs to cluster") && said.contains(&id),
        "{said}"
    );

    // The other cluster's directory in place of its own: its peers refuse what it says.
    let running = second.data_dir(0).display().to_string();
    let bench = Bench::new(PROGRAMS);
    let mut addresses = Addresses::new();
    let free = addresses.free();
    let answer = bench.run(
        "berth-scheduler",
        &["--data-dir", &running, "--listen", &free],
    );
    let _ = answer
        .with_status(1)
        .saying(&[&running, "in use by another process"]);
    let answer = bench.run(
        "berth-scheduler",
        &["--data-dir", &directory, "--listen", &free, "--bootstrap"],
    );
    let _ = answer
        .with_status(1)
        .saying(&[&directory, "already holds member 1"]);
    let empty = bench.path("empty");
    let answer = bench.run(
        "berth-scheduler",
        &["--data-dir", &empty, "--listen", &free],
    );
    let _ = answer
        .with_status(1)
        .saying(&[&empty, "--bootstrap", "--join"]);
    let occupied = bench.path("occupied");
    fs::create_dir(&occupied).expect("a directory");
    fs::write(Path::new(&occupied).join("thesis.txt"), "mine").expect("a file");
    let arguments = ["--data-dir", &occupied, "--listen", &free, "--bootstrap"];
    let answer = bench.run("berth-scheduler", &arguments);
    let _ = answer.with_status(1).saying(&[&occupied, "not empty"]);

    nothing_is_lost(&mut first);
    second.wait();
}

/// Goal: a member that is started on the directory of another cluster's member, with nothing said
/// of clusters, disturbs nobody, and the leader says what is wrong. Method: such a directory is put in place of
/// a killed member's, and put back.
#[test]
fn a_stranger_in_a_members_place_disturbs_nobody() {
    let mut cluster = Cluster::builder(PROGRAMS).host(Host::new("h1")).start();
    let mut other = used_member(PROGRAMS);
    other.schedulers[0].kill();
    cluster.pinned_flavor("one", 1);
    let place = (cluster.leader() + 1) % 3;
    cluster.schedulers[place].kill();
    let directory = cluster.data_dir(place);
    let aside = directory.with_extension("aside");
    fs::rename(&directory, &aside).expect("its own directory");
    fs::rename(other.data_dir(0), &directory).expect("the other's directory");

    cluster.schedulers[place].start(&cluster.programs);
    let _ = cluster.boot("a", "one", "h1");
    let leader = cluster.leader();
    eventually("a word about the other cluster", || {
        let log = cluster.schedulers[leader].said();
        let told = log.contains("this member belongs to cluster");
        told.then_some(()).ok_or(log)
    });
    cluster.schedulers[place].kill();

    fs::rename(&directory, other.data_dir(0)).expect("put back");
    fs::rename(&aside, &directory).expect("put back");
    cluster.schedulers[place].start(&cluster.programs);
    cluster.wait();
    let _ = cluster.pins_on("a", "h1");
    verdict::holds(&cluster);
    verdict::members_agree(&mut cluster);
    nothing_is_lost(&mut other);
}
