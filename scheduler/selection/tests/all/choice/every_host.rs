//! The choice against asking every host: filters, classes and likeness only spare work.
//!
//! Goal: a host is chosen exactly if one keeps every rule; it is admitted; the order in which hosts
//! are told of does not matter; and where none will do, the reason counts each host once. Method:
//! random hosts, guests and policies from a seed, every host asked by itself.
//!
//!   BERTH_CHOICE_CASES   how many cases (default 12,000)
//!   BERTH_CHOICE_SEED    the seed (default 1)

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::constraint::{self, PreparedDemand};
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_selection::{Choice, Index, NoHost, Request, explain};
use berth_testkit::selection::claim;

use super::draw::{self, Dice, Mix};

/// Guests that are asked of one world of hosts.
const GUESTS: u64 = 25;

type Hosts = BTreeMap<HostName, Arc<HostView>>;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn run(mix: Mix, cases: u64) {
    let seed = number("BERTH_CHOICE_SEED", 1);
    let (mut placed, mut refused) = (0, 0);
    for world in 0..cases.div_ceil(GUESTS) {
        let mut dice = Dice::new(seed.wrapping_mul(0x1_0000_0000).wrapping_add(world));
        let mut hosts = draw::hosts(&mut dice, mix);
        let mut index = Index::from_hosts(hosts.values());
        for turn in 0..GUESTS {
            let request = draw::request(&mut dice, mix);
            let told = format!("seed {seed}, world {world}, guest {turn}: {request:#?}");
            let answer = index.select(&request);
            let shuffled = Index::from_hosts(dice.shuffle(hosts.values().collect()));
            assert_eq!(place(&shuffled.select(&request)), place(&answer), "{told}");
            match check(&hosts, &request, &answer, &told) {
                None => refused += 1,
                Some(choice) => {
                    placed += 1;
                    let view = hosts.get_mut(&choice.host).unwrap();
                    Arc::make_mut(view).place(&claim(choice));
                    index.update(view);
                }
            }
        }
    }
    println!("{placed} placed, {refused} refused");
    // A comparison in which nearly nothing fits, or everything, would show little.
    assert!(placed * 40 > refused && refused * 40 > placed);
}

fn place(answer: &Result<Choice, NoHost>) -> Option<(&HostName, &berth_domain::numa::Assignment)> {
    let choice = answer.as_ref().ok()?;
    Some((&choice.host, &choice.assignment))
}

/// Compares an answer with what every host says by itself.
fn check<'a>(
    hosts: &Hosts,
    request: &Request,
    answer: &'a Result<Choice, NoHost>,
    told: &str,
) -> Option<&'a Choice> {
    let applicant = PreparedDemand::new(&request.demand);
    let strategy = request.policy.cells;
    let mut able = Vec::new();
    for view in hosts.values() {
        let placed = applicant.place(view, strategy).ok();
        assert_eq!(placed, applicant.try_place(view, strategy), "{told}");
        if placed.is_some() {
            assert!(applicant.suits_class(view), "{told}");
            if !request.excluded.contains(&view.host.name) {
                able.push(&view.host.name);
            }
        }
    }
    match answer {
        Ok(choice) => {
            assert!(able.contains(&&choice.host), "{told}");
            let view = &hosts[&choice.host];
            let verdict = constraint::admit(view, &request.demand, &claim(choice));
            assert_eq!(verdict, Ok(()), "{told}");
            Some(choice)
        }
        Err(_) => {
            assert!(able.is_empty(), "{able:?} passed over, {told}");
            let refusal = explain::nowhere(request, hosts.values());
            let counted: u32 = refusal.causes.values().sum();
            assert_eq!(counted as usize, hosts.len(), "{refusal}, {told}");
            None
        }
    }
}

#[test]
fn the_choice_agrees_with_asking_every_host() {
    run(Mix::Usual, number("BERTH_CHOICE_CASES", 12_000));
}

/// The same with hosts of 16 to 20 cells, and guests of as many.
#[test]
fn the_choice_agrees_where_cells_are_many() {
    run(Mix::ManyCells, number("BERTH_CHOICE_CASES", 12_000) / 10);
}
