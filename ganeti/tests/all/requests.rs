//! Requests as Ganeti sends them, made from generated clusters.

use std::fmt::Write as _;

use berth_ganeti::text::{Document, NodeRole, parse};
use berth_testkit::ganeti::skewed_text;

/// An instance in a request.
fn instance(template: &str, memory: i64, disk: i64, extra: &str) -> String {
    format!(
        "\"memory\":{memory},\"vcpus\":1,\"disks\":[{{\"size\":{disk},\"mode\":\"rw\"}}],\
         \"disk_space_total\":{disk},\"disk_template\":\"{template}\",\"nics\":[],\
         \"spindle_use\":1,\"hypervisor\":\"xen-pvm\",\"os\":\"none\"{extra}"
    )
}

fn count(template: &str) -> usize {
    if template == "drbd" { 2 } else { 1 }
}

/// Returns requests for a new instance with an empty cluster in them: it comes from a text, but
/// for its tags, by which hail reads the new instance.
pub(crate) fn allocations(document: &Document) -> Vec<String> {
    let cluster_tags = document.tags.iter().map(|tag| format!("\"{tag}\""));
    let cluster_tags = cluster_tags.collect::<Vec<_>>().join(",");
    let mut all = Vec::new();
    for template in ["ext", "plain", "drbd"] {
        for (memory, disk, tags) in [(512, 1024, ""), (3000, 20_000, "\"a:1\""), (40_000, 99, "")] {
            let nodes = count(template);
            let told = instance(template, memory, disk, "");
            all.push(format!(
                "{{\"cluster_tags\":[{cluster_tags}],\"enabled_hypervisors\":[],\"nodegroups\":{{}},\
                 \"nodes\":{{}},\"instances\":{{}},\"request\":{{\"type\":\"allocate\",\
                 \"name\":\"new\",\"required_nodes\":{nodes},\"tags\":[{tags}],{told}}}}}"
            ));
        }
    }
    all
}

/// Returns a cluster in JSON, its nodes in two groups.
fn cluster(document: &Document) -> String {
    let spec = |memory, cpus, size, disks, cards, use_| {
        format!(
            "{{\"memory-size\":{memory},\"cpu-count\":{cpus},\"disk-size\":{size},\
             \"disk-count\":{disks},\"nic-count\":{cards},\"spindle-use\":{use_}}}"
        )
    };
    let policy = format!(
        "{{\"std\":{},\"minmax\":[{{\"min\":{},\"max\":{}}}],\"vcpu-ratio\":4.0,\
         \"spindle-ratio\":32.0,\"disk-templates\":[\"drbd\",\"ext\",\"plain\",\"diskless\"]}}",
        spec(128, 1, 1024, 1, 1, 1),
        spec(128, 1, 0, 0, 0, 1),
        spec(524_288, 64, 16_777_216, 16, 8, 12),
    );
    let mut groups = Vec::new();
    for (name, allocation) in [("first", "preferred"), ("second", "last_resort")] {
        groups.push(format!(
            "\"uuid-{name}\":{{\"name\":\"{name}\",\"alloc_policy\":\"{allocation}\",\
             \"networks\":[],\"tags\":[],\"ipolicy\":{policy}}}"
        ));
    }
    let mut nodes = Vec::new();
    for (at, node) in document.nodes.iter().enumerate() {
        let group = if at < document.nodes.len() / 2 {
            "first"
        } else {
            "second"
        };
        let offline = node.role == NodeRole::Offline;
        nodes.push(format!(
            "\"{}\":{{\"group\":\"uuid-{group}\",\"offline\":{offline},\"drained\":false,\
             \"ndparams\":{{\"spindle_count\":{},\"exclusive_storage\":false}},\
             \"total_memory\":{},\"reserved_memory\":{},\"free_memory\":{},\"total_disk\":{},\
             \"free_disk\":{},\"total_cpus\":{},\"reserved_cpus\":1,\"total_spindles\":1,\
             \"free_spindles\":1,\"tags\":[]}}",
            node.name,
            node.spindles,
            node.total_memory,
            node.node_memory,
            node.free_memory,
            node.total_disk,
            node.free_disk,
            node.total_cpus,
        ));
    }
    let mut instances = Vec::new();
    for line in &document.instances {
        let on = std::iter::once(line.primary).chain(line.secondary);
        let on: Vec<String> = on
            .map(|n| format!("\"{}\"", document.nodes[n].name))
            .collect();
        let extra = format!(",\"tags\":[],\"nodes\":[{}]", on.join(","));
        let told = instance(line.disk_template.word(), line.memory, line.disk, &extra);
        instances.push(format!("\"{}\":{{{told}}}", line.name));
    }
    format!(
        "\"cluster_tags\":[],\"enabled_hypervisors\":[\"xen-pvm\"],\"nodegroups\":{{{}}},\
         \"nodes\":{{{}}},\"instances\":{{{}}}",
        groups.join(","),
        nodes.join(","),
        instances.join(",")
    )
}

/// Returns a cluster of two halves that share nothing, as two groups.
fn halves(seed: u64) -> Document {
    let one = skewed_text(seed, 5, 4, "mixed");
    let mut text = String::new();
    let sections: Vec<&str> = one.split("\n\n").collect();
    // The second half is a copy under other names.
    for (at, section) in sections.iter().enumerate() {
        text += section.trim_end_matches('\n');
        text.push('\n');
        if at == 1 || at == 2 {
            for line in section.lines() {
                let fields = line.split('|').map(|field| {
                    let named = field.len() > 4 && field[1..].bytes().all(|b| b.is_ascii_digit());
                    match (named, field.as_bytes().first()) {
                        (true, Some(b'n')) => format!("m{}", &field[1..]),
                        (true, Some(b'i')) => format!("j{}", &field[1..]),
                        _ => field.to_owned(),
                    }
                });
                writeln!(text, "{}", fields.collect::<Vec<_>>().join("|")).unwrap();
            }
        }
        text.push('\n');
    }
    parse(&text).unwrap()
}

/// Returns requests of every kind with their names.
pub(crate) fn of_every_kind(seed: u64) -> Vec<(String, String)> {
    let document = halves(seed);
    let cluster = cluster(&document);
    let find = |template: &str| {
        let found = document.instances.iter();
        let mut found = found.filter(|line| line.disk_template.word() == template);
        found.next().unwrap()
    };
    let (drbd, ext, plain) = (find("drbd"), find("ext"), find("plain"));
    let name = |node: usize| document.nodes[node].name.clone();
    let mut tasks: Vec<(String, String)> = Vec::new();
    let mut add = |kind: &str, task: String| tasks.push((kind.to_owned(), task));
    for (line, from) in [
        (drbd, drbd.secondary.unwrap()),
        (ext, ext.primary),
        (plain, plain.primary),
    ] {
        add(
            "relocate",
            format!(
                "\"type\":\"relocate\",\"name\":\"{}\",\"required_nodes\":1,\
                 \"relocate_from\":[\"{}\"]",
                line.name,
                name(from)
            ),
        );
    }
    let all = format!("\"{}\",\"{}\",\"{}\"", drbd.name, ext.name, plain.name);
    for mode in ["primary-only", "secondary-only", "all"] {
        add(
            mode,
            format!("\"type\":\"node-evacuate\",\"instances\":[{all}],\"evac_mode\":\"{mode}\""),
        );
    }
    for target in ["", "\"uuid-second\"", "\"uuid-first\""] {
        add(
            "change-group",
            format!(
                "\"type\":\"change-group\",\"instances\":[\"{}\"],\"target_groups\":[{target}]",
                drbd.name
            ),
        );
    }
    let wanted = |memory: i64, template: &str| {
        let (nodes, told) = (count(template), instance(template, memory, 2048, ""));
        format!(
            "{{\"name\":\"new-{memory}-{template}\",\"required_nodes\":{nodes},\"tags\":[],{told}}}"
        )
    };
    let several = [
        wanted(3000, "ext"),
        wanted(5000, "drbd"),
        wanted(900, "plain"),
    ];
    add(
        "multi-allocate",
        format!(
            "\"type\":\"multi-allocate\",\"instances\":[{}]",
            several.join(",")
        ),
    );
    let several = [wanted(3000, "ext"), wanted(500_000, "drbd")];
    add(
        "multi-allocate that fails",
        format!(
            "\"type\":\"multi-allocate\",\"instances\":[{}]",
            several.join(",")
        ),
    );
    add(
        "allocate-secondary",
        format!(
            "\"type\":\"allocate-secondary\",\"name\":\"{}\"",
            plain.name
        ),
    );
    for (template, memory) in [
        ("ext", 2000),
        ("drbd", 2000),
        ("plain", 2000),
        ("drbd", 500_000),
    ] {
        let told = instance(template, memory, 1024, ",\"tags\":[]");
        let nodes = count(template);
        let task =
            format!("\"type\":\"allocate\",\"name\":\"new\",\"required_nodes\":{nodes},{told}");
        add("allocate", task.clone());
        add(
            "allocate in a group",
            format!("{task},\"group_name\":\"second\""),
        );
        let only = format!(
            "{task},\"restrict-to-nodes\":[\"{}\",\"{}\"]",
            name(0),
            name(1)
        );
        add("allocate on some nodes", only);
    }
    let several: Vec<(String, String)> = tasks
        .into_iter()
        .flat_map(|(kind, task)| {
            let shared = format!("{{{cluster},\"request\":{{{task}}}}}");
            // The same with exclusive storage, where new instances go by what they make impossible.
            let dedicated = shared
                .replace("\"exclusive_storage\":false", "\"exclusive_storage\":true")
                .replace("\"mode\":\"rw\"", "\"mode\":\"rw\",\"spindles\":1")
                .replace("\"total_spindles\":1,", "\"total_spindles\":40,")
                .replace("\"free_spindles\":1,", "\"free_spindles\":20,");
            [
                (kind.clone(), shared),
                (format!("{kind}, dedicated"), dedicated),
            ]
        })
        .collect();
    several
}
