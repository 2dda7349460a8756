//! The VMs, a page at a time.

use berth_proto::scheduler::v1::{ListVmsResponse, Vm};
use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::operations::time;
use crate::route::VmsQuery;
use crate::table::{Column, number, table};
use crate::text::{Shown, encoded, host_path, mib, plain, short, vm_path};
use crate::words::{self, Tone, badge};

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, query: &VmsQuery, page: &ListVmsResponse) -> String {
    let rows: Vec<Markup> = page.vms.iter().map(row).collect();
    let columns = [
        Column::Text("VM"),
        Column::Text("State"),
        Column::Text("Host"),
        Column::Text("Flavor"),
        Column::Number("vCPUs"),
        Column::Number("Memory"),
        Column::Text("Project"),
        Column::Text("Created"),
    ];
    let view = View {
        section: Section::Vms,
        title: "VMs".to_owned(),
        fixed: form(query),
        live: html! {
            @if rows.is_empty() { p { "No VM is there." } } @else {
                (table("VMs in the order of their names", &columns, &rows))
            }
            (pages(query, &page.next_page_token))
        },
    };
    frame.document(&view)
}

fn form(query: &VmsQuery) -> Markup {
    html! {
        form class="query" method="get" action="/vms" {
            p {
                label for="host" { "On host" }
                input id="host" name="host" autocomplete="off" maxlength="255" value=(plain(&query.host));
            }
            p {
                label for="project" { "Of project" }
                input id="project" name="project" autocomplete="off" maxlength="255" value=(plain(&query.project));
            }
            p { button type="submit" { "Show" } }
        }
    }
}

fn pages(query: &VmsQuery, next: &str) -> Markup {
    let link = |after: &str| {
        format!(
            "/vms?host={}&project={}&after={}",
            encoded(&query.host),
            encoded(&query.project),
            encoded(after)
        )
    };
    html! {
        nav class="pages" aria-label="Pages" {
            @if !query.after.is_empty() { a href=(link("")) { "First page" } " " }
            @if !next.is_empty() { a rel="next" href=(link(next)) { "Next page" } }
        }
    }
}

fn row(vm: &Vm) -> Markup {
    let flavor = vm.spec.as_ref().and_then(|spec| spec.flavor.as_ref());
    html! {
        tr {
            th scope="row" { a href=(vm_path(&vm.name)) { (Shown(short(&vm.name))) } }
            td { (state(vm)) }
            td {
                @if vm.host.is_empty() { "-" } @else {
                    a href=(host_path(&vm.host)) { (Shown(short(&vm.host))) }
                }
            }
            @match flavor {
                Some(flavor) => {
                    td { (Shown(short(&flavor.name))) }
                    (number(flavor.vcpus))
                    (number(mib(flavor.memory_mib)))
                }
                None => { td { "-" } td { "-" } td { "-" } }
            }
            td { (Shown(short(&vm.project))) }
            td { (time(vm.create_time.as_ref())) }
        }
    }
}

/// Returns the state of a VM, with what is done to it and what is wrong.
pub(crate) fn state(vm: &Vm) -> Markup {
    html! {
        (badge(words::vm(vm.state())))
        @if !vm.task.is_empty() { " " (Shown(&vm.task)) }
        @if vm.guest_trouble.is_some() { " " (badge(("NOT RUNNING", Tone::Bad))) }
        @if vm.error.is_some() { " " (badge(("ERROR RECORDED", Tone::Bad))) }
    }
}
