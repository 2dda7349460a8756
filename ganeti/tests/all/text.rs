//! Goal: the text format is read as htools reads it, refused where it says something impossible,
//! and written back byte for byte. Method: sample files, a table of bad texts with the line and
//! column of their fault, and streams that never end.

use berth_ganeti::model::{Cluster, Move, NodeIndex, Options};
use berth_ganeti::text::{Fault, Limits, Reader, parse};

use crate::samples::samples;

const POLICY: &str = "|128,1,1024,1,1,1|128,1,0,0,1,1;9999,64,9999,16,8,12|drbd,ext|4.0|32.0";

/// Returns a small text with one line of each section replaced.
fn text(group: &str, node: &str, instance: &str, policy: &str) -> String {
    format!(
        "{group}\n\nn1|1000|10|800|900|900|4|M|u1\n{node}\n\n{instance}\n\nhtools:iextags:a\n\n\
         {policy}\n"
    )
}

const GROUP: &str = "g|u1|preferred||";
const NODE: &str = "n2|1000|10|990|900|900|4|N|u1|2|t:1,t:2|N|0|1|1.5";
const INSTANCE: &str = "i1|100|10|1|running|Y|n1|n2|drbd|a:1|1|-|N";

#[test]
fn what_was_read_is_written_byte_for_byte() {
    for (name, text) in samples() {
        let document = parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(document.source(), text, "{name}");
        assert_eq!(document.render(&[], &[], &[]), text, "{name}");
        let cluster = Cluster::new(&document, &Options::default());
        assert!(cluster.render(&document) == text, "{name}");
    }
}

#[test]
fn only_the_changed_fields_are_written() {
    let odd = format!("{INSTANCE}|of|later|versions");
    let text = text(GROUP, NODE, &odd, POLICY);
    let document = parse(&text).unwrap();
    let mut cluster = Cluster::new(&document, &Options::default());
    let instance = cluster.instance_indexes().next().unwrap();
    let change = cluster.draft_move(instance, Move::Failover, false).unwrap();
    cluster.apply(&change);
    let expected = text
        .replace("|n1|n2|drbd", "|n2|n1|drbd")
        .replace("n1|1000|10|800|", "n1|1000|10|900|")
        .replace("n2|1000|10|990|", "n2|1000|10|890|");
    assert_eq!(cluster.render(&document), expected);
    cluster.revert(&change);
    assert_eq!(cluster.render(&document), text);
}

#[test]
fn an_added_instance_becomes_the_last_line_of_its_section() {
    let text = text(GROUP, NODE, INSTANCE, POLICY);
    let document = parse(&text).unwrap();
    let mut cluster = Cluster::new(&document, &Options::default());
    let mut line = document.instances[0].clone();
    line.name = "new".to_owned();
    line.tags.clear();
    let added = cluster.add_instance(&line);
    assert_eq!(cluster.render(&document), text, "it is nowhere yet");
    let change = cluster.draft_place(added, NodeIndex(1), Some(NodeIndex(0)), false);
    cluster.apply(&change.unwrap());
    let written = cluster.render(&document);
    let expected = format!("{INSTANCE}\nnew|100|10|1|running|Y|n2|n1|drbd||1\n");
    assert!(written.contains(&expected), "{written}");
    assert_eq!(parse(&written).unwrap().instances.len(), 2);
}

#[test]
fn optional_fields_have_their_defaults() {
    let text = text(
        "g|u1|last_resort|",
        "n2|?|1|2|3|4|5|N|u1",
        "i|1|2|3|ADMIN_down|N|n1||ext|",
        "",
    );
    let document = parse(&text).unwrap();
    let node = &document.nodes[1];
    assert!(node.unknown && node.total_memory == 0.0 && node.spindles == 0);
    let node = &document.nodes[0];
    assert_eq!((node.spindles, node.node_cpus, node.cpu_speed), (1, 1, 1.0));
    let instance = &document.instances[0];
    assert_eq!(
        (
            instance.spindle_use,
            instance.spindles,
            instance.forthcoming
        ),
        (1, None, false)
    );
    assert!(document.policies.is_empty());
    let cluster = Cluster::new(&document, &Options::default());
    assert!(cluster.node(NodeIndex(1)).offline);
    let without_policies = text.trim_end_matches('\n').to_owned() + "\n";
    assert_eq!(parse(&without_policies).unwrap().policies, []);
}

#[test]
fn the_memory_ratio_is_the_seventh_field_and_1_where_it_is_missing() {
    let ratio = |policy: &str| {
        let document = parse(&text(GROUP, NODE, INSTANCE, policy)).unwrap();
        document.policies[0].1.memory_ratio
    };
    assert_eq!(ratio(POLICY), 1.0);
    assert_eq!(ratio(&format!("{POLICY}|1.5")), 1.5);
    assert_eq!(ratio(&format!("{POLICY}|2|more")), 2.0);
    assert_eq!(ratio(&format!("{POLICY}|")), 1.0);
}

/// Checks where a text is refused, and that the message says something of it.
fn refused(text: &str, line: usize, column: usize, says: &str) {
    let fault = parse(text).expect_err(says);
    assert_eq!(
        (fault.line, fault.column),
        (line, column),
        "{fault} ({says})"
    );
    assert!(fault.to_string().contains(says), "{fault} ({says})");
}

#[test]
fn bad_groups_are_refused_with_line_and_column() {
    for (from, to, column, says) in [
        (
            "|preferred||",
            "|preferred",
            6,
            "at least 4 fields, this one has 3",
        ),
        ("preferred", "prefered", 6, "preferred, last_resort"),
        ("g|u1", "|u1", 1, "name of the group is empty"),
        (
            "||",
            "||\ng|u2|preferred|",
            1,
            "group 'g' is already on line 1",
        ),
        (
            "||",
            "||\nh|u1|preferred|",
            3,
            "UUID 'u1' is already on line 1",
        ),
    ] {
        let group = GROUP.replacen(from, to, 1);
        let line = 1 + group.matches('\n').count();
        refused(&text(&group, NODE, INSTANCE, POLICY), line, column, says);
    }
}

#[test]
fn bad_nodes_are_refused_with_line_and_column() {
    for (from, to, column, says) in [
        (
            "|4|N|u1|2|t:1,t:2|N|0|1|1.5",
            "|4|N",
            26,
            "at least 9 fields, this one has 8",
        ),
        ("|1000|", "|-1000|", 4, "must not be below 0"),
        ("|1000|", "|NaN|", 4, "not a number"),
        ("|1000|", "|inf|", 4, "not a number"),
        ("|1000|", "||", 4, "is '', which is not a number"),
        ("|1000|", "|1e300|", 4, "must not be above"),
        ("|10|", "|10.5|", 9, "not a whole number"),
        ("|10|", "|-10|", 9, "must not be below 0"),
        ("|990|", "| 990|", 12, "not a whole number"),
        ("|990|", "|99999999999999999999|", 12, "must not be above"),
        (
            "|N|u1",
            "|N|u9",
            28,
            "group with UUID 'u9' is not in this text",
        ),
        ("n2|", "n1|", 1, "node 'n1' is already on line 3"),
        ("|N|0|", "|X|0|", 41, "known are Y and N"),
        ("|1.5", "|fast", 47, "not a number"),
    ] {
        let node = NODE.replacen(from, to, 1);
        refused(&text(GROUP, &node, INSTANCE, POLICY), 4, column, says);
    }
}

#[test]
fn bad_instances_are_refused_with_line_and_column() {
    for (from, to, column, says) in [
        ("|a:1|1|-|N", "", 29, "at least 10 fields, this one has 9"),
        ("|100|", "|-100|", 4, "must not be below 0"),
        ("|100|", "|much|", 4, "not a whole number"),
        ("|1|running", "|-1|running", 11, "must not be below 0"),
        ("running", "dancing", 13, "running, ADMIN_down"),
        ("|Y|", "|y|", 21, "known are Y and N"),
        ("|n1|", "|n7|", 23, "node 'n7' is not in this text"),
        ("|n2|", "|n7|", 26, "node 'n7' is not in this text"),
        ("|n2|", "|n1|", 26, "same primary and secondary node"),
        ("|n1|", "||", 23, "node '' is not in this text"),
        ("drbd", "drdb", 29, "diskless, file"),
        ("|1|-|N", "|x|-|N", 38, "not a whole number"),
        ("|-|N", "|-3|N", 40, "must not be below 0"),
        ("|-|N", "|-|no", 42, "known are Y and N"),
        ("i1|", "|", 1, "name of the instance is empty"),
    ] {
        let instance = INSTANCE.replacen(from, to, 1);
        refused(&text(GROUP, NODE, &instance, POLICY), 6, column, says);
    }
}

#[test]
fn bad_policies_are_refused_with_line_and_column() {
    for (from, to, column, says) in [
        (
            "|drbd,ext|4.0|32.0",
            "|drbd,ext|4.0",
            63,
            "at least 6 fields, this one has 5",
        ),
        ("|4.0", "|four", 63, "not a number"),
        ("drbd,ext", "drbd,ex", 59, "diskless, file"),
        ("128,1,1024,1,1,1|", "128,1,1024,1,1|", 2, "6 values"),
        (";9999,64,9999,16,8,12", "", 19, "pairs"),
        (
            "|128,1,1024",
            "zz|128,1,1024",
            1,
            "group 'zz' is not in this text",
        ),
    ] {
        let policy = POLICY.replacen(from, to, 1);
        refused(&text(GROUP, NODE, INSTANCE, &policy), 10, column, says);
    }
    refused(
        &text(GROUP, NODE, INSTANCE, &format!("{POLICY}|-1")),
        10,
        72,
        "below 0",
    );
    let twice = format!("{POLICY}\n{POLICY}");
    refused(
        &text(GROUP, NODE, INSTANCE, &twice),
        11,
        1,
        "already on line 10",
    );
}

#[test]
fn missing_sections_and_foreign_files_are_refused() {
    refused("", 1, 1, "1 of at least 4 sections");
    refused("g|u1|preferred||\n\n\n", 4, 1, "3 of at least 4 sections");
    assert!(parse("\n\n\n").is_ok(), "four empty sections");
    refused("\u{7f}ELF", 1, 1, "control character");
    refused("g|u1|preferred||\r\n", 1, 17, "control character 0x0d");
    let mut reader = Reader::new(Limits::default());
    let fault = reader.push(b"ab\xff\xfe\n").unwrap_err();
    assert_eq!(
        (fault.line, fault.column, fault.fault),
        (1, 3, Fault::NotText)
    );
}

#[test]
fn a_gigabyte_of_garbage_ends_after_its_beginning() {
    let garbage = vec![b'x'; 1 << 16];
    let mut reader = Reader::new(Limits::default());
    let mut taken = 0_u64;
    let fault = loop {
        match reader.push(&garbage) {
            Ok(()) => taken += garbage.len() as u64,
            Err(fault) => break fault,
        }
        assert!(taken < 1 << 30, "it never ends");
    };
    assert!(taken <= 1 << 20, "{taken}");
    assert_eq!(fault.fault, Fault::LineTooLong { limit: 1 << 20 });
    let limits = Limits {
        text_bytes: 1 << 16,
        line_bytes: 100,
    };
    let mut reader = Reader::new(limits);
    reader.push(b"\n\n\n").unwrap();
    let line = b"a-tag-that-comes-again\n";
    let fault = std::iter::repeat_n(line, 1 << 20).find_map(|line| reader.push(line).err());
    assert_eq!(fault.unwrap().fault, Fault::TooLong { limit: 1 << 16 });
}

#[test]
fn a_text_may_come_in_pieces_of_any_size() {
    for (name, text) in samples() {
        for size in [1, 7, 4096] {
            let mut reader = Reader::new(Limits::default());
            for piece in text.as_bytes().chunks(size) {
                reader.push(piece).unwrap();
            }
            assert!(reader.finish().unwrap() == parse(&text).unwrap(), "{name}");
        }
    }
}
