//! Goal: capacity at every memory ratio is that of Debian's `hspace` on inputs scaled by the
//! ratio. Method: the table of 2 sizes x 5 ratios x 3 templates, strict rules.

use berth_ganeti::capacity::{Answer, Question, Shape, capacity};
use berth_ganeti::model::{Cluster, DiskTemplate, MemoryRule, Options, RatioSource, Rules};
use berth_ganeti::text;

fn options(memory: MemoryRule, ratio: RatioSource) -> Options {
    Options {
        rules: Rules { memory, ratio },
        ..Options::default()
    }
}

fn ask(name: &str, template: DiskTemplate, n_plus_one: bool, tiered: bool) -> Answer {
    let path = format!("{}/testdata/cap/{name}", env!("CARGO_MANIFEST_DIR"));
    let document = text::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    let options = options(MemoryRule::Strict, RatioSource::Policy);
    let mut cluster = Cluster::new(&document, &options);
    let before = cluster.clone();
    let question = Question {
        shape: Shape {
            memory: if tiered { 24_000 } else { 6000 },
            disk: 1024,
            vcpus: if tiered { 4 } else { 1 },
            spindles: 1,
        },
        disk_template: template,
        spindle_use: 1,
        group: None,
        n_plus_one,
        tiered,
    };
    let answer = capacity(&mut cluster, &question);
    assert!(cluster == before, "{name}: the cluster is as it was");
    answer
}

const RATIOS: [&str; 5] = ["1.0", "1.25", "1.5", "2.0", "3.0"];

/// Goal: the whole table.
#[test]
fn the_table_of_hspace_at_every_ratio() {
    let rows: [(usize, &[DiskTemplate], bool, [u64; 5]); 6] = [
        (
            4,
            &[DiskTemplate::External, DiskTemplate::Plain],
            true,
            [30, 39, 48, 63, 96],
        ),
        (
            4,
            &[DiskTemplate::External, DiskTemplate::Plain],
            false,
            [40, 52, 64, 84, 128],
        ),
        (4, &[DiskTemplate::Drbd], true, [29, 38, 48, 62, 96]),
        (
            8,
            &[DiskTemplate::External, DiskTemplate::Plain],
            true,
            [70, 91, 112, 147, 224],
        ),
        (
            8,
            &[DiskTemplate::External, DiskTemplate::Plain],
            false,
            [80, 104, 128, 168, 256],
        ),
        (8, &[DiskTemplate::Drbd], true, [65, 86, 108, 143, 220]),
    ];
    let mut wrong = Vec::new();
    for (nodes, templates, n_plus_one, expected) in rows {
        for (ratio, expected) in RATIOS.iter().zip(expected) {
            for template in templates {
                let name = format!("empty-{nodes}-r{ratio}.data");
                let answer = ask(&name, *template, n_plus_one, false);
                if answer.instances != expected {
                    wrong.push((name, *template, n_plus_one, answer, expected));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Goal: so are the smaller shapes where no more of the first fits, and the reason of the end.
#[test]
fn shrinking_shapes_and_reasons_are_those_of_hspace() {
    let path = format!("{}/testdata/hspace-oracle.txt", env!("CARGO_MANIFEST_DIR"));
    let oracle = std::fs::read_to_string(path).unwrap();
    let mut compared = 0;
    for line in oracle.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [nodes, ratio, template, n_plus_one, instances, reason, tiers] = words[..] else {
            panic!("{line}");
        };
        let template = match template {
            "drbd" => DiskTemplate::Drbd,
            "plain" => DiskTemplate::Plain,
            "ext" => DiskTemplate::External,
            _ => panic!("{line}"),
        };
        let name = format!("empty-{nodes}-r{ratio}.data");
        let answer = ask(&name, template, n_plus_one == "yes", false);
        assert_eq!(answer.instances.to_string(), instances, "{line}");
        assert_eq!(answer.limiting.htools().to_uppercase(), reason, "{line}");
        let answer = ask(&name, template, n_plus_one == "yes", true);
        let told = answer.tiers.iter().map(|tier| {
            let Shape {
                memory,
                disk,
                vcpus,
                spindles,
            } = tier.shape;
            format!("{memory},{disk},{vcpus},{spindles}={}", tier.instances)
        });
        assert_eq!(told.collect::<Vec<_>>().join(";"), tiers, "{line}");
        compared += 1;
    }
    assert_eq!(compared, 50);
}
