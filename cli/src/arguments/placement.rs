//! The arguments of counted placement: providers, resource classes, traits, candidates.

use clap::{Args, Subcommand, ValueEnum};

use super::key_value;

/// Verbs of resource providers.
#[derive(Debug, Subcommand)]
pub enum Provider {
    /// List resource providers, optionally filtered
    #[command(after_help = LIST_HELP)]
    List(ProviderList),
    /// Watch the providers and their changes
    #[command(after_help = WATCH_HELP)]
    Watch {
        /// Name or UUID of the only provider to watch
        provider: Option<String>,
        /// Revision after which to start, from an earlier watch
        #[arg(long, value_name = "REVISION")]
        after: Option<u64>,
    },
    /// Show a provider with its inventories, usages and traits
    Show {
        /// Name or UUID of the provider
        provider: String,
    },
    /// Create a resource provider
    Create {
        /// Name of the provider
        display_name: String,
        /// Name or UUID of the parent provider
        #[arg(long)]
        parent: Option<String>,
    },
    /// Rename a provider, or move it with its descendants
    Update {
        /// Name or UUID of the provider
        provider: String,
        /// New name of the provider
        #[arg(long)]
        display_name: Option<String>,
        /// Name or UUID of the new parent provider
        #[arg(long, conflicts_with = "root")]
        parent: Option<String>,
        /// Make the provider a root of its own tree
        #[arg(long)]
        root: bool,
    },
    /// Replace the inventories of a provider
    SetInventories {
        /// Name or UUID of the provider
        provider: String,
        /// Resource class and its total (repeatable)
        #[arg(long = "inventory", value_name = "CLASS=TOTAL", value_parser = amount)]
        inventories: Vec<(String, u64)>,
    },
    /// Replace the traits of a provider
    SetTraits {
        /// Name or UUID of the provider
        provider: String,
        /// Name of a trait (repeatable)
        #[arg(long = "trait", value_name = "TRAIT")]
        traits: Vec<String>,
    },
    /// Replace the aggregates of a provider
    SetAggregates {
        /// Name or UUID of the provider
        provider: String,
        /// UUID of an aggregate (repeatable)
        #[arg(long = "aggregate", value_name = "UUID")]
        aggregates: Vec<String>,
    },
    /// Delete a provider without children and allocations
    Delete {
        /// Name or UUID of the provider
        provider: String,
    },
}

/// Verbs of resource classes.
#[derive(Debug, Subcommand)]
pub enum Class {
    /// List standard and custom resource classes
    List,
    /// Create a resource class, unless it exists
    Create {
        /// Name of the class, such as CUSTOM_GOLD
        class: String,
    },
    /// Rename a resource class wherever it is used
    Rename {
        /// Current name of the class
        class: String,
        /// New name of the class
        new_name: String,
    },
    /// Delete a resource class without inventories
    Delete {
        /// Name of the class
        class: String,
    },
}

/// Verbs of traits.
#[derive(Debug, Subcommand)]
pub enum Trait {
    /// List standard and custom traits
    List {
        /// Only the traits with this prefix of their name
        #[arg(long)]
        prefix: Option<String>,
        /// Only the traits of at least one provider
        #[arg(long)]
        associated: bool,
    },
    /// Create a trait, unless it exists
    Create {
        /// Name of the trait, such as CUSTOM_FAST
        name: String,
    },
    /// Delete a trait that no provider has
    Delete {
        /// Name of the trait
        name: String,
    },
}

const LIST_HELP: &str = "\
Examples: the providers of one tree; providers with a trait and 4 free CPUs:
  berth provider list --in-tree 6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10
  berth provider list --resources VCPU=4 \\
      --required 'HW_CPU_X86_AVX2|HW_CPU_X86_AVX512F'";

const WATCH_HELP: &str = "\
Prints one line for each provider that exists, is new, was changed or is gone,
until Ctrl-C. With --output json each line is an object with `revision` and
`provider` or `deleted`; --after REVISION continues from there, if the history
is still kept. If a scheduler stops, the watch continues at another one.";

/// Arguments of `berth provider list`.
#[derive(Debug, Default, PartialEq, Eq, Args)]
pub struct ProviderList {
    /// Only the provider with this name
    #[arg(long)]
    pub name: Option<String>,
    /// Only providers with this capacity for one consumer now
    #[arg(long, value_name = "CLASS=AMOUNT", value_delimiter = ',', value_parser = amount)]
    pub resources: Vec<(String, u64)>,
    /// Traits and aggregates of the providers
    #[command(flatten)]
    pub filter: ProviderFilter,
}

/// Traits and aggregates that a provider must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ProviderFilter {
    /// Traits that are required; of TRAIT|TRAIT any one (repeatable)
    #[arg(long, value_name = "TRAIT", value_delimiter = ',')]
    pub required: Vec<String>,
    /// Traits that are forbidden (repeatable)
    #[arg(long, value_name = "TRAIT", value_delimiter = ',')]
    pub forbidden: Vec<String>,
    /// Aggregates that are required; of UUID|UUID any one (repeatable)
    #[arg(long, value_name = "UUID", value_delimiter = ',')]
    pub member_of: Vec<String>,
    /// Aggregates that are forbidden (repeatable)
    #[arg(long, value_name = "UUID", value_delimiter = ',')]
    pub not_member_of: Vec<String>,
    /// UUID of any provider in the required tree
    #[arg(long, value_name = "UUID")]
    pub in_tree: Option<String>,
}

/// Arguments of `berth candidates`.
#[derive(Debug, Args)]
#[command(after_help = "\
A comma separates requirements that must all hold, | alternatives:
  berth candidates --resources VCPU=4,MEMORY_MB=2048 \\
      --required 'HW_CPU_X86_AVX2,CUSTOM_A|CUSTOM_B'

--resources may come from several providers of one tree and from sharing
providers. A group must come from one provider: a name, its resources, and
requirements of the provider: required=, forbidden=, member_of=,
not_member_of= and in_tree=. Two devices of different networks, on two cards,
below one host:
  berth candidates --resources VCPU=2 --group-policy isolate \\
      --group 'left: SRIOV_NET_VF=1 required=CUSTOM_PHYSNET_A' \\
      --group 'right: SRIOV_NET_VF=1 required=CUSTOM_PHYSNET_B'
A group without resources names a provider for --same-subtree:
  berth candidates --group 'cpu: PCPU=4' --group 'card: VGPU=1' \\
      --group 'cell: required=HW_NUMA_ROOT' --same-subtree cell,cpu,card

A query in the syntax of OpenStack's clients is accepted, too:
  berth candidates \\
      --query 'resources=VCPU:1&required=in:HW_CPU_X86_AVX2,CUSTOM_A&limit=5'

If there is no candidate, standard error shows how many providers or trees each
requirement removed, and the nearest miss; the exit status is 4.")]
pub struct Candidates {
    /// Amount of each resource class (repeatable)
    #[arg(long, value_name = "CLASS=AMOUNT", value_delimiter = ',', value_parser = amount)]
    #[arg(required_unless_present_any = ["groups", "query"])]
    pub resources: Vec<(String, u64)>,
    /// Traits and aggregates of the providers of --resources
    #[command(flatten)]
    pub filter: ProviderFilter,
    /// Resources that one provider must supply (repeatable); see below
    #[arg(long = "group", value_name = "NAME: WORDS", value_parser = group)]
    pub groups: Vec<Group>,
    /// Whether groups may share providers [default: none]
    #[arg(long, value_enum)]
    pub group_policy: Option<GroupPolicy>,
    /// Groups with providers in one subtree, rooted at one of them (repeatable)
    #[arg(long, value_name = "NAME,NAME")]
    pub same_subtree: Vec<String>,
    /// Traits that the root of the tree must have (repeatable)
    #[arg(long, value_name = "TRAIT", value_delimiter = ',')]
    pub root_required: Vec<String>,
    /// Traits that the root of the tree must not have (repeatable)
    #[arg(long, value_name = "TRAIT", value_delimiter = ',')]
    pub root_forbidden: Vec<String>,
    /// Maximum number of candidates; 0 for all
    #[arg(long, default_value_t = 10)]
    pub limit: u32,
    /// Order of the trees [default: rotated, or stable with --limit 0]
    #[arg(long, value_enum)]
    pub order: Option<Order>,
    /// Use at most one provider of each tree
    #[arg(long)]
    pub flat: bool,
    /// Query in the syntax of OpenStack Placement instead; its own limit takes precedence
    #[arg(long, value_name = "QUERY")]
    #[arg(conflicts_with_all = [
        "resources", "required", "forbidden", "member_of", "not_member_of", "in_tree", "groups",
        "group_policy", "same_subtree", "root_required", "root_forbidden",
    ])]
    pub query: Option<String>,
}

/// Whether groups share providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupPolicy {
    /// One provider may serve several groups
    None,
    /// Each group has a provider of its own
    Isolate,
}

/// The order of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The same order each time
    Stable,
    /// Starting at another tree each time
    Rotated,
}

/// What one provider must supply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The name of the group.
    pub name: String,
    /// The amount of each resource class.
    pub resources: Vec<(String, u64)>,
    /// Traits and aggregates of the provider.
    pub filter: ProviderFilter,
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
            "required" => group.filter.required.extend(list()),
            "forbidden" => group.filter.forbidden.extend(list()),
            "member_of" => group.filter.member_of.extend(list()),
            "not_member_of" => group.filter.not_member_of.extend(list()),
            "in_tree" => group.filter.in_tree = Some(value),
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
        assert_eq!(read.filter.required, ["A", "B|C"]);
        assert_eq!(read.filter.forbidden, ["D"]);
        assert_eq!(read.filter.member_of, ["x|y"]);
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
            let error = group(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
