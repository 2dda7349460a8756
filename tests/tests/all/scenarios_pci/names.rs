//! Aliases: what is wrong with them, and who has which function.

use std::fs;

use berth_tests::processes::{Answer, Cluster, Host, eventually};

use super::bench::{alias, boot, delete, flavor};
use crate::PROGRAMS;

const CARD: &str = r#"
[[pci]]
address = "0000:81:00.0"
vendor = "8086"
device = "1572"
numa_node = 1
sriov_totalvfs = 2
[[pci]]
address = "0000:81:02.0"
vendor = "8086"
device = "154c"
numa_node = 1
physfn = "0000:81:00.0"
"#;
const RULE: &str = "[[pci.device_spec]]\naddress = \"0000:81:00.0\"\n";

/// Returns what a person sees.
fn drawn(cluster: &Cluster, words: &[&str]) -> String {
    let mut command = cluster.programs.command("berth");
    command
        .args(["--scheduler", &cluster.addresses()])
        .args(words);
    Answer::of(command).with_status(0).stdout
}

/// Goal: what is wrong with an alias or with what a flavor says of one is told with the name of
/// the thing, before anything is recorded.
#[test]
fn wrong_aliases_are_refused() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1").with_pci(CARD, RULE))
        .start();
    let create =
        |name, words: &[&str]| cluster.berth(&[&["pci-alias", "create", name], words].concat());
    let vf = ["--match", "product_id=154c"];
    // Usage: nobody is asked.
    for (words, told) in [
        (&[][..], "--match"),
        (&["--match", "product_id=1"], "four hexadecimal digits"),
        (
            &["--match", "vendor=8086"],
            "known are vendor_id, product_id, kind",
        ),
        (
            &["--match", "product_id=154c,product_id=154c"],
            "product_id is there twice",
        ),
        (
            &["--match", "product_id=154c", "--policy", "nearby"],
            "required, preferred, legacy, socket",
        ),
    ] {
        let _ = create("nic", words).with_status(2).saying(&[told]);
    }
    let long = "x".repeat(64);
    for name in ["a b", "ä", "-", ".nic", "a/b", "", &long] {
        let _ = cluster
            .berth(&[&["pci-alias", "create"], &vf[..], &["--", name]].concat())
            .with_status(2)
            .saying(&["pci alias"]);
    }
    let twice = [vf, vf].concat();
    let _ = create("nic", &twice)
        .refused(1)
        .saying(&["INVALID_PCI_ALIAS", "any_of[1]", "twice"]);
    let mixed = [&vf[..], &["--match", "kind=pf"]].concat();
    let _ = create("nic", &mixed).refused(1).saying(&["any_of[1].kind"]);
    assert_eq!(
        cluster
            .json(&["pci-alias", "list"])
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    for verb in ["show", "delete"] {
        let _ = cluster
            .berth(&["pci-alias", verb, "nic"])
            .refused(1)
            .saying(&["PCI_ALIAS_NOT_FOUND"]);
    }

    for count in ["0", "257", "4294967297", "-1", "many"] {
        let spec = format!("pci_passthrough:alias=nic:{count}");
        let words = [
            "flavor",
            "create",
            "f",
            "--vcpus",
            "1",
            "--memory-mib",
            "64",
            "--spec",
            &spec,
        ];
        let told = cluster.berth(&words).refused(1);
        let _ = told.saying(&["extra_specs.pci_passthrough:alias", "1 to 256"]);
    }
    let words = [
        "flavor",
        "create",
        "early",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ];
    let words = [&words[..], &["--spec", "pci_passthrough:alias=nic:1"]].concat();
    let _ = cluster
        .berth(&words)
        .with_status(0)
        .saying(&["warning: pci alias nic does not exist"]);
    let missing = cluster.berth(&Cluster::create("a", "early")).refused(1);
    let _ = missing.saying(&[
        "INVALID_VM",
        "pci_passthrough:alias",
        "nic",
        "berth pci-alias create nic",
    ]);
    alias(&cluster, "nic", None, &["product_id=ffff"]);
    let _ = create("nic", &vf).refused(1).saying(&["PCI_ALIAS_EXISTS"]);
    let nothing_like_it = cluster.berth(&Cluster::create("a", "early")).refused(1);
    let _ = nothing_like_it.saying(&["NO_VALID_HOST", "PCI_DEVICES", "*:ffff"]);
    policies_are_judged_with_the_image(&cluster);
}

/// Row S1: four words and no other, in flavor and image, and no contradiction between both.
fn policies_are_judged_with_the_image(cluster: &Cluster) {
    alias(cluster, "vf", None, &["product_id=154c"]);
    let specs = ["hw:cpu_policy=dedicated", "pci_passthrough:alias=vf:1"];
    flavor(cluster, "open", 1, &specs);
    flavor(
        cluster,
        "said",
        1,
        &[&specs[..], &["hw:pci_numa_affinity_policy=socket"]].concat(),
    );
    let with = |flavor, policy: &str| {
        let property = format!("hw_pci_numa_affinity_policy={policy}");
        let words = ["--host", "h1", "--image-property", &property];
        cluster.berth(&[&Cluster::create("a", flavor)[..], &words].concat())
    };
    for policy in ["required", "preferred", "legacy", "socket"] {
        let _ = with("open", policy).with_status(0);
        delete(cluster, "a");
    }
    let field = "image_properties.hw_pci_numa_affinity_policy";
    let _ = with("open", "near")
        .refused(1)
        .saying(&[field, "required, preferred, legacy or socket"]);
    let _ = with("said", "legacy")
        .refused(1)
        .saying(&[field, "contradicts the flavor"]);
    let _ = with("said", "socket").with_status(0);
    delete(cluster, "a");
}

/// Goal: a physical function and its virtual ones are never given away both, people see who has
/// which, a VM keeps its function when the alias goes, and where it goes while it is used, the host says so.
#[test]
fn people_see_who_has_which_function() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1").with_pci(CARD, RULE))
        .start();
    let pinned = "hw:cpu_policy=dedicated";
    alias(&cluster, "vf", None, &["product_id=154c,kind=vf"]);
    alias(&cluster, "pf", None, &["product_id=1572,kind=pf"]);
    alias(&cluster, "any", None, &["vendor_id=8086"]);
    for name in ["vf", "pf", "any"] {
        flavor(
            &cluster,
            name,
            1,
            &[pinned, &format!("pci_passthrough:alias={name}:1")],
        );
    }
    let shown = drawn(&cluster, &["pci-alias", "list"]);
    assert_eq!(
        shown,
        "ALIAS  POLICY  MATCHES\nany    -       8086:*\npf     -       *:1572 (PF)\nvf     -       *:154c (VF)\n"
    );
    for (first, given, then) in [("vf", "0000:81:02.0", "pf"), ("pf", "0000:81:00.0", "vf")] {
        let has = boot(&cluster, "guest", first, "h1").unwrap();
        assert_eq!(has.functions, [given]);
        for then in [then, "any"] {
            let refused = boot(&cluster, "other", then, "h1").unwrap_err();
            assert_eq!(refused.causes, ["PCI_DEVICES"], "{refused:?}");
        }
        let vm = drawn(&cluster, &["vm", "show", "guest"]);
        assert!(vm.contains(&format!("PCI functions {given}")), "{vm}");
        let host = drawn(&cluster, &["host", "show", "h1"]);
        assert!(host.contains(&format!("{given}=A")), "{host}");
        delete(&cluster, "guest");
    }
    // Nobody who does not ask for a whole card gets one.
    let has = boot(&cluster, "guest", "any", "h1").unwrap();
    assert_eq!(has.functions, ["0000:81:02.0"]);
    cluster.run(&["pci-alias", "delete", "any"]);
    let kept = cluster.json(&["vm", "show", "guest"]);
    assert!(
        kept["vm"]["spec"]["pci_aliases"]["any"].is_object(),
        "{kept:#}"
    );

    // The card is taken out under the guest.
    let machine = cluster.folder().join("h1-machine.toml");
    let config = cluster.folder().join("h1.toml");
    for (file, from) in [(&machine, CARD), (&config, RULE)] {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(file, text.replace(from, "")).unwrap();
    }
    cluster.agents[0].kill();
    cluster.agents[0].start(&cluster.programs);
    // The host is taken as it is now, and says whom that hits.
    eventually("the host without the card", || {
        let host = drawn(&cluster, &["host", "show", "h1"]);
        if host.contains("vm guest:") && host.contains("0000:81:02.0") {
            Ok(())
        } else {
            Err(host)
        }
    });
    let kept = drawn(&cluster, &["vm", "show", "guest"]);
    assert!(kept.contains("PCI functions 0000:81:02.0"), "{kept}");
}
