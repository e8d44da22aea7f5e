"""From answers to findings: events and their formats, statistics, motifs, repetitions, angles, deviation and agreement."""
