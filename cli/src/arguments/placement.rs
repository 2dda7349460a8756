//! What can be typed about counted placement: providers, resource classes, traits, candidates.

use clap::{Args, Subcommand, ValueEnum};

use super::key_value;

/// Verbs of resource providers.
#[derive(Debug, Subcommand)]
pub enum Provider {
    /// List resource providers, all or those that are like this
    #[command(after_help = LIST_HELP)]
    List(ProviderList),
    /// Show the providers as they are, and then each change as it happens
    #[command(after_help = WATCH_HELP)]
    Watch {
        /// Only the one with this UUID
        provider: Option<String>,
        /// Begin with the changes after this revision, as told by an earlier watch
        #[arg(long, value_name = "REVISION")]
        after: Option<u64>,
    },
    /// Show one with its inventories, usages and traits
    Show {
        /// Its UUID
        provider: String,
    },
    /// Make one
    Create {
        /// What people call it
        display_name: String,
        /// The UUID of the one above it
        #[arg(long)]
        parent: Option<String>,
    },
    /// Rename one, or move it with all that is below it
    Update {
        /// Its UUID
        provider: String,
        /// What people call it from now on
        #[arg(long)]
        display_name: Option<String>,
        /// The UUID of the one above it from now on
        #[arg(long, conflicts_with = "root")]
        parent: Option<String>,
        /// Take it out of its tree: it becomes a root
        #[arg(long)]
        root: bool,
    },
    /// Replace the inventories of one
    SetInventories {
        /// Its UUID
        provider: String,
        /// A class and its total (can be repeated)
        #[arg(long = "inventory", value_name = "CLASS=TOTAL", value_parser = amount)]
        inventories: Vec<(String, u64)>,
    },
    /// Replace the traits of one
    SetTraits {
        /// Its UUID
        provider: String,
        /// A trait (can be repeated)
        #[arg(long = "trait", value_name = "TRAIT")]
        traits: Vec<String>,
    },
    /// Replace the aggregates of one
    SetAggregates {
        /// Its UUID
        provider: String,
        /// The UUID of an aggregate (can be repeated)
        #[arg(long = "aggregate", value_name = "UUID")]
        aggregates: Vec<String>,
    },
    /// Delete one that has neither children nor allocations
    Delete {
        /// Its UUID
        provider: String,
    },
}

/// Verbs of resource classes.
#[derive(Debug, Subcommand)]
pub enum Class {
    /// List the standard ones and those that were created
    List,
    /// Make one, unless it is there
    Create {
        /// Its name, as CUSTOM_GOLD
        class: String,
    },
    /// Rename one wherever it is counted
    Rename {
        /// Its name so far
        class: String,
        /// Its name from now on
        new_name: String,
    },
    /// Delete one of which no provider has any
    Delete {
        /// Its name
        class: String,
    },
}

/// Verbs of traits.
#[derive(Debug, Subcommand)]
pub enum Trait {
    /// List the standard ones and those that were created
    List {
        /// What the names begin with
        #[arg(long)]
        prefix: Option<String>,
        /// Only those that a provider has
        #[arg(long)]
        associated: bool,
    },
    /// Make one, unless it is there
    Create {
        /// Its name, as CUSTOM_FAST
        name: String,
    },
    /// Delete one that no provider has
    Delete {
        /// Its name
        name: String,
    },
}

const LIST_HELP: &str = "\
Examples: providers of one tree; fast ones that could give 4 CPUs to one consumer now:
  berth provider list --in-tree 6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10
  berth provider list --resources VCPU=4 --required 'HW_CPU_X86_AVX2|HW_CPU_X86_AVX512F'";

const WATCH_HELP: &str = "\
One line for each provider that is there, is new, was changed or is gone, until Ctrl-C. With
--output json each line is an object with `revision` and `provider` or `deleted`; a watch with
--after REVISION goes on from there, if so much is still kept. It goes on by itself at another
scheduler where one stops.";

/// Which providers are listed.
#[derive(Debug, Default, PartialEq, Eq, Args)]
pub struct ProviderList {
    /// What people call it
    #[arg(long)]
    pub name: Option<String>,
    /// Only those that could give so much of each class to one consumer now
    #[arg(long, value_name = "CLASS=AMOUNT", value_delimiter = ',', value_parser = amount)]
    pub resources: Vec<(String, u64)>,
    /// What they are like
    #[command(flatten)]
    pub qualities: Qualities,
}

/// What a provider is like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Qualities {
    /// Have these traits; of TRAIT|TRAIT one is enough (can be repeated)
    #[arg(long, value_name = "TRAIT", value_delimiter = ',')]
    pub required: Vec<String>,
    /// Have none of these traits (can be repeated)
    #[arg(long, value_name = "TRAIT", value_delimiter = ',')]
    pub forbidden: Vec<String>,
    /// Be in these aggregates; of UUID|UUID one is enough (can be repeated)
    #[arg(long, value_name = "UUID", value_delimiter = ',')]
    pub member_of: Vec<String>,
    /// Be in none of these aggregates (can be repeated)
    #[arg(long, value_name = "UUID", value_delimiter = ',')]
    pub not_member_of: Vec<String>,
    /// Be in the tree of this provider, which need not be the root
    #[arg(long, value_name = "UUID")]
    pub in_tree: Option<String>,
}

/// What candidates are asked for.
#[derive(Debug, Args)]
#[command(after_help = "\
A comma separates what is wanted together, | what is enough as one:
  berth candidates --resources VCPU=4,MEMORY_MB=2048 --required 'HW_CPU_X86_AVX2,CUSTOM_A|CUSTOM_B'

--resources may come from several providers of one tree and from those that share with it.
What must come from one provider is a group: a name, its resources, and what is asked of the
provider by required=, forbidden=, member_of=, not_member_of= and in_tree=. Two devices of
different networks, on two cards, below one host:
  berth candidates --resources VCPU=2 --group-policy isolate \\
      --group 'left: SRIOV_NET_VF=1 required=CUSTOM_PHYSNET_A' \\
      --group 'right: SRIOV_NET_VF=1 required=CUSTOM_PHYSNET_B'
A group without resources names a place, for --same-subtree:
  berth candidates --group 'cpu: PCPU=4' --group 'card: VGPU=1' \\
      --group 'cell: required=HW_NUMA_ROOT' --same-subtree cell,cpu,card

A query as OpenStack's clients write it is taken as well:
  berth candidates --query 'resources=VCPU:1&required=in:HW_CPU_X86_AVX2,CUSTOM_A&limit=5'

Where there is no candidate, standard error tells which requirement removed how many providers or
trees, and what came nearest; the exit status is 4.")]
pub struct Candidates {
    /// Take so much of each class (can be repeated)
    #[arg(long, value_name = "CLASS=AMOUNT", value_delimiter = ',', value_parser = amount)]
    #[arg(required_unless_present_any = ["groups", "query"])]
    pub resources: Vec<(String, u64)>,
    /// What the providers of --resources are like
    #[command(flatten)]
    pub qualities: Qualities,
    /// Take this from one provider (can be repeated); see below
    #[arg(long = "group", value_name = "NAME: WORDS", value_parser = group)]
    pub groups: Vec<Group>,
    /// Let groups share providers, or give each its own [default: none]
    #[arg(long, value_enum)]
    pub group_policy: Option<GroupPolicy>,
    /// Let one of the providers of these groups be above all the others, or be all of them (can
    /// be repeated)
    #[arg(long, value_name = "NAME,NAME")]
    pub same_subtree: Vec<String>,
    /// Let the root of the tree have these traits (can be repeated)
    #[arg(long, value_name = "TRAIT", value_delimiter = ',')]
    pub root_required: Vec<String>,
    /// Let the root of the tree have none of these traits (can be repeated)
    #[arg(long, value_name = "TRAIT", value_delimiter = ',')]
    pub root_forbidden: Vec<String>,
    /// Stop after so many; 0: after all
    #[arg(long, default_value_t = 10)]
    pub limit: u32,
    /// Begin at the same tree each time, or elsewhere [default: rotated, or stable with --limit 0]
    #[arg(long, value_enum)]
    pub order: Option<Order>,
    /// Take from one provider of a tree at most
    #[arg(long)]
    pub flat: bool,
    /// Ask this query of OpenStack Placement instead; its own limit counts, if it has one
    #[arg(long, value_name = "QUERY")]
    #[arg(conflicts_with_all = [
        "resources", "required", "forbidden", "member_of", "not_member_of", "in_tree", "groups",
        "group_policy", "same_subtree", "root_required", "root_forbidden",
    ])]
    pub query: Option<String>,
}

/// How groups share providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupPolicy {
    /// One provider may serve several groups
    None,
    /// Each group has a provider of its own
    Isolate,
}

/// In which order candidates come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The same each time
    Stable,
    /// Beginning elsewhere each time
    Rotated,
}

/// What is wanted of one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// How much of which class.
    pub resources: Vec<(String, u64)>,
    /// What the provider is like.
    pub qualities: Qualities,
}

fn is_class(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
}

/// Takes `VCPU=1,MEMORY_MB=2` apart; of `required=A,B` all is one part.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    word.split(if is_class(word) { ',' } else { ' ' })
}

/// Reads `NAME: CLASS=AMOUNT required=TRAIT,TRAIT …`; classes are in capitals, the rest is not.
fn group(text: &str) -> Result<Group, String> {
    let form = "expected NAME: CLASS=AMOUNT … required=TRAIT,… (see --help)";
    let (name, words) = text.split_once(':').ok_or(form)?;
    let mut group = Group {
        name: name.trim().to_owned(),
        ..Group::default()
    };
    if group.name.is_empty() {
        return Err(format!("the name before ':' is empty: {form}"));
    }
    for word in words.split_whitespace().flat_map(parts) {
        let (key, value) = key_value(word).map_err(|why| format!("{word:?}: {why}"))?;
        let list = || value.split(',').map(ToOwned::to_owned);
        match &*key {
            "required" => group.qualities.required.extend(list()),
            "forbidden" => group.qualities.forbidden.extend(list()),
            "member_of" => group.qualities.member_of.extend(list()),
            "not_member_of" => group.qualities.not_member_of.extend(list()),
            "in_tree" => group.qualities.in_tree = Some(value),
            _ if is_class(&key) => {
                group.resources.push(amount(word)?);
            }
            _ => {
                return Err(format!(
                    "{key:?} is neither a resource class, which is in capitals, nor one of \
                     required, forbidden, member_of, not_member_of, in_tree"
                ));
            }
        }
    }
    Ok(group)
}

fn amount(text: &str) -> Result<(String, u64), String> {
    let (class, total) = key_value(text)?;
    let total = total
        .parse()
        .map_err(|_| format!("{total:?} is not a whole number"))?;
    Ok((class, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_word_by_word() {
        let read = group("gpu: VGPU=2,VCPU=1 required=A,B|C forbidden=D member_of=x|y").unwrap();
        assert_eq!(read.name, "gpu");
        assert_eq!(
            read.resources,
            [("VGPU".to_owned(), 2), ("VCPU".to_owned(), 1)]
        );
        assert_eq!(read.qualities.required, ["A", "B|C"]);
        assert_eq!(read.qualities.forbidden, ["D"]);
        assert_eq!(read.qualities.member_of, ["x|y"]);
        assert!(
            group("cell: required=HW_NUMA_ROOT")
                .unwrap()
                .resources
                .is_empty()
        );
        for (text, part) in [
            ("VGPU=1", "expected NAME:"),
            (": VGPU=1", "before ':' is empty"),
            ("a: VGPU", "\"VGPU\": expected KEY=VALUE"),
            ("a: VGPU=x", "\"x\" is not a whole number"),
            ("a: vgpu=1", "\"vgpu\" is neither a resource class"),
        ] {
            let told = group(text).unwrap_err();
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
