//! The list of guarantees, and the macro that turns them into tests.

/// Generates one test for every guarantee, over the runtime that a harness function creates.
///
/// The function is given by a path that is valid in a child module (`crate::harness`) and has the signature
/// `async fn harness() -> Result<Harness<R>, Missing>`.
#[macro_export]
macro_rules! conformance_suite {
    ($harness:path) => {
        $crate::conformance_cases! { $harness;
            shell_state: [
                starts_in_the_working_directory, directory_carries_on, variables_carry_on,
                arrays_carry_on, functions_carry_on, exported_variables_reach_programs,
                options_aliases_and_umask_carry_on, environment_of_the_specification_is_there,
                exit_reports_its_code_and_the_next_call_works, set_e_does_not_lose_the_sandbox,
                exec_replaces_the_shell_for_one_command, a_killed_shell_comes_back,
                timeout_keeps_the_former_state, timeout_kills_everything_the_command_started,
                timeout_spares_earlier_processes, timeout_kills_what_ignores_it,
                commands_queue_up, cancelling_a_command_leaves_a_working_shell,
            ];
            scripts: [
                heredocs_and_quotes, comment_without_a_final_newline, broken_syntax_is_data,
                nul_byte_is_refused, ten_megabyte_command, empty_command, standard_input_is_empty,
                command_not_found_is_data, crashing_program_is_data,
            ];
            output: [
                streams_are_kept_apart, bytes_are_exact, long_output_keeps_head_and_tail,
                flood_costs_no_memory, both_streams_flood_at_once, ten_gigabytes_pass,
                background_process_does_not_block, background_output_stays_with_its_command,
                background_server_answers_later, output_before_a_timeout_is_kept,
            ];
            processes: [
                arguments_arrive_as_they_are, standard_input_streams_through, exit_codes_pass,
                signals_are_reported, missing_program_is_127, file_without_permission_is_126,
                directory_and_environment_are_set, process_timeout_kills, shell_state_does_not_leak,
                no_input_is_end_of_file, endless_output_is_cut_by_the_timeout, terminal_is_a_terminal,
                terminal_follows_its_size, processes_run_side_by_side, bad_process_is_refused,
                background_child_does_not_hold_a_process,
            ];
            files: [
                contents_are_byte_exact, new_file_gets_0644_and_its_directories,
                existing_permissions_stay, writing_is_atomic, failed_write_leaves_the_old,
                missing_paths_are_named, special_files_are_refused_at_once, links_resolve_inside,
                dotdot_stays_inside, writes_through_links_stay_inside, odd_names_work,
                listing_has_kinds_sizes_and_modes, large_file_streams_in_constant_memory,
            ];
            copies: [
                tree_survives_the_round_trip, single_files_land_exactly_there,
                links_are_copied_as_links, missing_sources_are_named,
                links_leading_out_are_reported, copy_in_through_links_stays_inside,
                large_copies_use_constant_memory, copied_files_belong_to_the_sandbox,
            ];
            fork: [
                fork_has_the_same_files_and_is_independent, fork_keeps_the_specification,
                fork_leaves_processes_and_shell_state, fork_of_a_fork_outlives_its_parents,
                deleted_files_stay_deleted_in_a_fork, snapshot_starts_further_sandboxes,
                snapshot_needs_the_name_of_an_image,
            ];
            freeze: [
                frozen_sandboxes_cannot_be_written, freezing_cannot_be_undone,
                frozen_sandboxes_still_work, callers_cannot_write_what_is_frozen,
                freezing_kills_writers, copies_of_a_frozen_sandbox_can_be_written,
            ];
            limits: [
                memory_bomb_is_reported, fork_bomb_is_reported, unbounded_fork_bomb_ends_at_the_timeout,
                disk_filler_is_reported, full_disk_leaves_the_old_file, half_a_core_is_half_a_core,
                many_files_are_fine, timeout_is_reported, no_limit_no_cause,
                peak_memory_is_what_was_in_use,
            ];
            network: [
                none_has_no_way_out, none_has_its_own_loopback, full_reaches_this_machine,
                allow_reaches_the_named_host, allow_refuses_everything_else,
                allow_refuses_private_targets_of_wildcards, allow_leaves_no_direct_way,
                allow_reaches_loopback_by_any_name, allow_counts_what_it_refuses,
            ];
            isolation: [
                host_environment_is_invisible, host_files_are_invisible, host_processes_are_invisible,
                neighbours_are_invisible, commands_have_three_descriptors, hostname_is_its_own,
                privileges_cannot_grow, protection_is_reported,
            ];
            pool: [taken_sandboxes_are_fresh_and_independent, closing_leaves_none];
            lifecycle: [
                listed_while_alive_and_gone_after_destroy, dropping_destroys, unknown_image_is_named,
                bad_specification_creates_nothing, many_at_once, killing_everything_inside_is_survived,
                names_differ, prune_leaves_live_sandboxes,
            ];
        }
    };
}

/// Expands the list above; not meant to be called.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($harness:path; $($story:ident: [$($case:ident),* $(,)?];)*) => {
        $(
            mod $story {
                $(
                    #[test]
                    fn $case() {
                        $crate::run($harness, async |harness| $crate::$story::$case(harness).await);
                    }
                )*
            }
        )*
    };
}
