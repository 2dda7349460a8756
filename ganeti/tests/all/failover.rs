//! Goal: local and global N+1 are those of the installed `hcheck`, and violations are told apart.
//! Method: counts of failing nodes on samples and skewed clusters; small clusters made by hand.

use berth_ganeti::balance::evacuate::empty_node;
use berth_ganeti::failover::{Verdict, Violation, verify};
use berth_ganeti::model::{Cluster, MemoryRule, NodeIndex, Options, RatioSource, Refusal, Rules};
use berth_ganeti::text::parse;
use berth_testkit::ganeti::{hcheck, skewed_text};

use crate::samples::samples;

fn judged(text: &str, rules: Rules) -> Vec<Verdict> {
    let options = Options {
        rules,
        ..Options::default()
    };
    verify(&Cluster::new(&parse(text).unwrap(), &options))
}

const RELEASED: Rules = Rules {
    memory: MemoryRule::Strict,
    ratio: RatioSource::Ignored,
};

#[test]
fn n1_is_that_of_the_installed_hcheck() {
    let Some(hcheck) = hcheck() else {
        return;
    };
    let mut texts = samples();
    // Ganeti fills offline nodes as a last resort, which is not done here.
    texts.retain(|(name, _)| name != "status.data");
    for (at, mix) in ["drbd", "ext", "plain", "mixed"].into_iter().enumerate() {
        for (nodes, per_node) in [(3, 10), (5, 10), (6, 14), (8, 16)] {
            for seed in 0..2 {
                let seed = (1_000 * seed + 10 * nodes + at) as u64;
                let name = format!("{mix} {nodes} {per_node} {seed}");
                texts.push((name, skewed_text(seed, nodes, per_node, mix)));
            }
        }
    }
    let (mut locals, mut globals) = (0, 0);
    for (name, text) in texts {
        let (local, global) = hcheck.failing(&text);
        let verdicts = judged(&text, RELEASED);
        let ours = verdicts.iter().filter(|v| !v.local_ok).count();
        assert_eq!(ours, local, "{name}: local");
        let ours = verdicts.iter().filter(|v| !v.global_ok()).count();
        assert_eq!(ours, global, "{name}: global");
        (locals, globals) = (locals + local, globals + global);
    }
    assert!(
        locals > 0 && globals > 10,
        "{locals} and {globals} say too little"
    );
}

/// Returns three nodes of 1,000 MiB and the given instances.
fn three(instances: &str, ratio: &str) -> String {
    let used = |node: &str| -> i64 {
        let here = instances
            .lines()
            .filter(|l| l.contains(&format!("|{node}|")));
        let here = here.filter(|l| l.split('|').nth(6) == Some(node) && l.ends_with('N'));
        let running = here.filter(|l| l.contains("running"));
        running
            .map(|l| l.split('|').nth(1).unwrap().parse::<i64>().unwrap())
            .sum()
    };
    let node = |n: &str| format!("{n}|1000|0|{}|9999|9999|9|N|u", 1000 - used(n));
    format!(
        "g|u|preferred|\n\n{}\n{}\n{}\n\n{instances}\n\n\n\
         g|1,1,1,1,1,1|1,1,0,0,1,1;999,9,9,9,9,9|drbd,ext|9.0|99.0|{ratio}\n",
        node("a"),
        node("b"),
        node("c")
    )
}

fn violations(text: &str) -> Vec<Violation> {
    let verdicts = judged(text, Rules::default());
    verdicts.iter().map(|v| v.violation).collect()
}

#[test]
fn what_runs_is_hard_and_what_is_promised_is_soft() {
    use Violation::{Hard, None, Soft};
    let full = "i|1000|0|1|running|Y|a||ext||1|-|N";
    assert_eq!(
        violations(&three(full, "1")),
        [None; 3],
        "at most the ratio"
    );
    let over = "i|1001|0|1|running|Y|a||ext||1|-|N";
    assert_eq!(violations(&three(over, "1")), [Hard, None, None]);
    assert_eq!(violations(&three(over, "1.1")), [None; 3]);
    let down = "i|1001|0|1|ADMIN_down|Y|a||ext||1|-|N";
    assert_eq!(violations(&three(down, "1")), [None; 3]);
    let promised = format!("{full}\nj|1|0|1|running|Y|a||ext||1|-|Y");
    assert_eq!(violations(&three(&promised, "1")), [Soft, None, None]);
    let reserved = "i|600|0|1|running|Y|a||ext||1|-|N\nj|401|0|1|running|Y|b|a|drbd||1|-|N";
    assert_eq!(violations(&three(reserved, "1")), [Soft, None, None]);
    assert_eq!(violations(&three(reserved, "1.5")), [None; 3]);
}

#[test]
fn a_node_that_cannot_be_emptied_says_what_stays() {
    let text = three(
        "i|600|0|1|running|Y|a||ext||1|-|N\nj|500|0|1|running|Y|b||ext||1|-|N\n\
         k|500|0|1|running|Y|c||ext||1|-|N",
        "1",
    );
    let verdicts = judged(&text, Rules::default());
    let stranded = verdicts[0].stranded.expect("600 fit nowhere");
    assert_eq!(
        (stranded.instance.0, stranded.refusal),
        (0, Refusal::Memory)
    );
    assert!(verdicts[0].local_ok && !verdicts[0].is_ok());
    assert!(
        verdicts[1].is_ok() && verdicts[2].is_ok(),
        "500 fit beside 500"
    );
    let strict = judged(&text, RELEASED);
    assert!(
        strict.iter().all(|v| !v.global_ok()),
        "the last byte is never given away"
    );
    let more = judged(
        &text,
        Rules {
            ratio: RatioSource::Fixed(1.1),
            ..Rules::default()
        },
    );
    assert!(more.iter().all(Verdict::is_ok));
}

#[test]
fn the_plan_empties_the_node() {
    for (name, text) in samples() {
        let mut cluster = Cluster::new(&parse(&text).unwrap(), &Options::default());
        let untouched = cluster.clone();
        let Ok(steps) = empty_node(&cluster, NodeIndex(3 % cluster.nodes().len() as u32)) else {
            continue;
        };
        let node = NodeIndex(3 % cluster.nodes().len() as u32);
        for step in &steps {
            let change = cluster.draft_move(step.instance, step.what, true).unwrap();
            cluster.apply(&change);
            assert_eq!(cluster.placement(step.instance), step.to, "{name}");
        }
        let left = cluster.lists(node).primaries.iter();
        let left = left.filter(|i| !cluster.instance(**i).forthcoming);
        assert_eq!(left.count(), 0, "{name}");
        assert!(untouched != cluster || steps.is_empty(), "{name}");
    }
}

#[test]
fn over_commitment_is_judged_by_the_ratio() {
    let text = |file: &str| {
        samples()
            .into_iter()
            .find(|(name, _)| name == file)
            .unwrap()
            .1
    };
    let failing = |text: &str, rules| {
        let verdicts = judged(text, rules);
        let local = verdicts.iter().filter(|v| !v.local_ok).count();
        (local, verdicts.iter().filter(|v| !v.global_ok()).count())
    };
    // One cluster, with the ratio in its policy and scaled into its memory.
    assert_eq!(failing(&text("r15.data"), RELEASED).0, 11);
    assert_eq!(failing(&text("r15.data"), Rules::default()), (0, 0));
    assert_eq!(failing(&text("r15c.data"), RELEASED), (0, 0));
}
