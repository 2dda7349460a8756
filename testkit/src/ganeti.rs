//! Generators of small and of skewed Ganeti clusters, and the installed `hbal` and `hcheck`.

use std::fmt::Write as _;
use std::process::Command;

/// Numbers that are the same in every run (xorshift64*).
pub struct Random(u64);

impl Random {
    /// Returns the numbers of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 33) % end as u64) as usize
    }

    /// Returns one of the words.
    pub fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const STATUSES: [&str; 9] = [
    "running",
    "ADMIN_down",
    "ADMIN_offline",
    "ERROR_up",
    "ERROR_down",
    "ERROR_nodedown",
    "ERROR_nodeoffline",
    "ERROR_wrongnode",
    "USER_down",
];

/// Returns a cluster of 2 to 12 nodes with everything that the format can say, books that are
/// mostly right, and some that are not.
pub fn random_text(seed: u64) -> String {
    let mut random = Random::new(seed);
    let nodes = 2 + random.below(11);
    let plain_only = random.below(3) == 0;
    let instances = random.below(8 * nodes);
    let mut used = vec![0_i64; nodes];
    let mut disk = vec![0_i64; nodes];
    let mut lines = String::new();
    for instance in 0..instances {
        lines.push_str(&random_instance(
            &mut random,
            instance,
            plain_only,
            &mut used,
            &mut disk,
        ));
    }
    let mut text = "g|u1|preferred||\n\n".to_owned();
    for node in 0..nodes {
        let taken = (used[node], disk[node]);
        text.push_str(&random_node(&mut random, node, plain_only, taken));
    }
    write!(text, "\n{lines}\n").unwrap();
    for tag in [
        "htools:iextags:a",
        "htools:iextags:b:",
        "htools:nlocation:loc",
        "htools:desiredlocation:loc",
        "htools:migration:m",
        "htools:allowmigration:m:1::m:2",
    ] {
        if random.below(2) == 0 {
            writeln!(text, "{tag}").unwrap();
        }
    }
    let ratios = ["4.0|32.0", "4.0|3.5", "2.5|32.0"];
    let policy = format!(
        "128,1,1024,1,1,1|128,1,0,0,1,1;524288,64,16777216,16,8,12|drbd,ext,rbd,plain,file|{}",
        random.pick(&ratios)
    );
    write!(text, "\n|{policy}\n").unwrap();
    if random.below(3) > 0 {
        writeln!(text, "g|{policy}").unwrap();
    }
    text
}

fn random_instance(
    random: &mut Random,
    instance: usize,
    plain_only: bool,
    used: &mut [i64],
    disk: &mut [i64],
) -> String {
    let nodes = used.len();
    let template = random.pick(&["drbd", "drbd", "plain", "ext", "rbd", "file"]);
    let status = if plain_only || random.below(2) == 0 {
        "running"
    } else {
        random.pick(&STATUSES)
    };
    let memory = 128 * (1 + random.below(16)) as i64;
    let size = 64 * random.below(40) as i64;
    let primary = random.below(nodes);
    let secondary = (primary + 1 + random.below(nodes - 1)) % nodes;
    let mirrored = template == "drbd";
    let forthcoming = !plain_only && random.below(8) == 0;
    if !forthcoming {
        if !["ADMIN_down", "ADMIN_offline", "ERROR_down", "USER_down"].contains(&status) {
            used[primary] += memory;
        }
        if mirrored || template == "plain" {
            disk[primary] += size;
        }
        if mirrored {
            disk[secondary] += size;
        }
    }
    let secondary = if mirrored {
        format!("n{secondary}")
    } else {
        String::new()
    };
    let auto = if random.below(6) == 0 { 'N' } else { 'Y' };
    let tags = random.pick(&["", "", "a:1", "a:2", "a:1,b:1", "loc:x", "a:1,a:1,loc:y,z"]);
    let flag = if forthcoming { 'Y' } else { 'N' };
    let (vcpus, spindle_use) = (1 + random.below(4), random.below(4));
    let own = random.pick(&["-", "1", "2"]);
    format!(
        "i{instance}|{memory}|{size}|{vcpus}|{status}|{auto}|n{primary}|{secondary}|{template}\
             |{tags}|{spindle_use}|{own}|{flag}\n"
    )
}

fn random_node(random: &mut Random, node: usize, plain_only: bool, taken: (i64, i64)) -> String {
    let total = [8_192, 16_384, 12_345][random.below(3)] as i64;
    let own = 128 * random.below(5) as i64;
    let odd = [0, 0, 0, 500, -300][random.below(5)];
    let free = total - own - taken.0 - if plain_only { 0 } else { odd };
    let size = [65_536, 100_000][random.below(2)] as i64;
    let left = size - taken.1;
    let role = match random.below(12) {
        0 => 'Y',
        1 => 'M',
        _ => 'N',
    };
    let role = if node == 0 { 'N' } else { role };
    let memory = if node > 1 && random.below(25) == 0 {
        "?".to_owned()
    } else {
        total.to_string()
    };
    let tags = random.pick(&[
        "",
        "loc:x",
        "loc:y",
        "loc:x,loc:y,m:1",
        "m:2",
        "loc:xx,other",
    ]);
    let (cpus, own_cpus) = (4 + random.below(20), random.below(3));
    let speed = random.pick(&["1.0", "2.0", "0.5"]);
    let spindles = 1 + random.below(16);
    // Only where nothing is promised: there htools counts free spindles in a way of its own.
    let exclusive = plain_only && random.below(8) == 0;
    let (exclusive, left_over) = if exclusive {
        ('Y', random.below(9))
    } else {
        ('N', 0)
    };
    format!(
        "n{node}|{memory}|{own}|{free}|{size}|{left}|{cpus}|{role}|u1|{spindles}|{tags}|{exclusive}\
         |{left_over}|{own_cpus}|{speed}\n"
    )
}

/// The installed `hbal`.
pub struct Hbal;

/// Returns `hbal`, or says that there is none.
pub fn hbal() -> Option<Hbal> {
    if Command::new("hbal").arg("--version").output().is_ok() {
        return Some(Hbal);
    }
    assert!(
        std::env::var("BERTH_REAL").as_deref() != Ok("require"),
        "hbal is not installed (package ganeti-htools)"
    );
    eprintln!("skipped: hbal is not installed (package ganeti-htools)");
    None
}

impl Hbal {
    /// Runs it on a text and returns what it printed.
    pub fn run(&self, text: &str, arguments: &[&str]) -> String {
        let folder = tempfolder();
        let file = folder.join("cluster.data");
        std::fs::write(&file, text).unwrap();
        let output = Command::new("hbal")
            .args(arguments)
            .arg("-t")
            .arg(&file)
            .output()
            .unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the 20 components that it prints, or nothing where it prints none.
    pub fn components(&self, text: &str) -> Option<[f64; 20]> {
        let output = self.run(text, &["-v", "-v", "-l", "0"]);
        let table = output.split_once("Initial coefficients: overall")?.1;
        let mut found = [f64::NAN; 20];
        for (at, (name, _)) in berth_ganeti::score::COMPONENTS.iter().enumerate() {
            let line = table
                .lines()
                .find(|l| l.split_whitespace().next() == Some(name))?;
            found[at] = line.split_whitespace().nth(1)?.parse().ok()?;
        }
        Some(found)
    }

    /// Returns the score that it reaches by balancing.
    pub fn balanced(&self, text: &str) -> Option<f64> {
        let output = self.run(text, &["-v"]);
        let improved = output
            .lines()
            .find(|l| l.starts_with("Cluster score improved from"));
        match improved {
            Some(line) => line.split_whitespace().last()?.parse().ok(),
            None => {
                let line = output.lines().find(|l| l.starts_with("Initial score:"))?;
                line.split_whitespace().last()?.parse().ok()
            }
        }
    }
}

fn tempfolder() -> std::path::PathBuf {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("berth-ganeti-{}-{next}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns a skewed cluster without oddities: a few nodes are full, most are half empty, and the
/// books are exact. What fits nowhere is left out. `mix` is a disk template or `mixed`.
pub fn skewed_text(seed: u64, nodes: usize, per_node: usize, mix: &str) -> String {
    let mut random = Random::new(seed);
    let (total, own, size) = (131_072_i64, 1_024_i64, 16_777_216_i64);
    let mut used = vec![0_i64; nodes];
    let mut disk = vec![0_i64; nodes];
    let mut kept = vec![std::collections::BTreeMap::<usize, i64>::new(); nodes];
    let mut lines = String::new();
    for instance in 0..nodes * per_node {
        let share = [1, 1, 1, 2, 2, 2, 4, 4, 8][random.below(9)];
        let memory = 2_560 * share;
        let drawn = [10_240, 20_480, 51_200, 102_400][random.below(4)];
        let template = match mix {
            "mixed" => random.pick(&["drbd", "drbd", "plain", "ext"]),
            other => other,
        };
        let found = (0..400).find_map(|_| {
            // The lower of two draws: the first nodes get more.
            let primary = random.below(nodes).min(random.below(nodes));
            let secondary = (primary + 1 + random.below(nodes - 1)) % nodes;
            let reserved = |node: usize| kept[node].values().copied().max().unwrap_or(0);
            let needed = kept[secondary].get(&primary).unwrap_or(&0) + memory;
            let free = |node: usize| total - own - used[node];
            let fits = free(primary) - memory > reserved(primary);
            let mirrored = template == "drbd";
            let keeps = !mirrored || free(secondary) > needed.max(reserved(secondary));
            (fits && keeps).then_some((primary, secondary))
        });
        let Some((primary, secondary)) = found else {
            continue;
        };
        used[primary] += memory;
        let local = template == "drbd" || template == "plain";
        disk[primary] += if local { drawn } else { 0 };
        let mut name = String::new();
        if template == "drbd" {
            disk[secondary] += drawn;
            *kept[secondary].entry(primary).or_default() += memory;
            name = format!("n{secondary:04}");
        }
        let drawn = if local { drawn } else { 0 };
        writeln!(
            lines,
            "i{instance:05}|{memory}|{drawn}|{share}|running|Y|n{primary:04}|{name}|{template}||1"
        )
        .unwrap();
    }
    let mut text = "g|u1|preferred||\n\n".to_owned();
    for node in 0..nodes {
        let (free, left) = (total - own - used[node], size - disk[node]);
        writeln!(
            text,
            "n{node:04}|{total}|{own}|{free}|{size}|{left}|48|N|u1|16||N|0|0"
        )
        .unwrap();
    }
    let policy =
        "128,1,1024,1,1,1|128,1,0,0,1,1;524288,64,16777216,16,8,12|drbd,ext,plain|4.0|32.0";
    write!(text, "\n{lines}\n\n|{policy}\ng|{policy}\n").unwrap();
    text
}

/// The installed `hcheck`.
pub struct Hcheck;

/// Returns `hcheck`, or says that there is none.
pub fn hcheck() -> Option<Hcheck> {
    hbal().map(|_| Hcheck)
}

impl Hcheck {
    /// Returns how many nodes fail N+1, locally and globally.
    pub fn failing(&self, text: &str) -> (usize, usize) {
        let folder = tempfolder();
        let file = folder.join("cluster.data");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("hcheck");
        command
            .args(["--machine-readable", "--no-simulation", "-t"])
            .arg(&file);
        let output = command.output().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = |name: &str| {
            let line = output.lines().find(|l| l.starts_with(name));
            let line = line.unwrap_or_else(|| panic!("{name} in {output}"));
            line.rsplit('=').next().unwrap().parse::<usize>().unwrap()
        };
        (
            value("HCHECK_INIT_CLUSTER_N1_FAIL"),
            value("HCHECK_INIT_CLUSTER_GN1_FAIL"),
        )
    }
}
