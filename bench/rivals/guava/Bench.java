/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bench.java - Guava's RateLimiter, as bench/run calls it: CPU ns a call of tryAcquire(), admitted
 * and refused, with PAIR measured in the same round. Prints: name threads ns ratio_to_pair
 */
import com.google.common.util.concurrent.RateLimiter;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicLongArray;

public final class Bench {
    private static final int ROUNDS = 11;
    private static final long ROUND_MS = 60;
    private static volatile boolean stop;

    /** One thread's loop: n calls, and how many were admitted. */
    private interface Subject {
        long run(int n);
    }

    /** PAIR: an atomic add and a sub in the middle of the thread's own array. */
    private static Subject pair() {
        AtomicLongArray own = new AtomicLongArray(64);
        return n -> {
            for (int i = 0; i < n; i++) {
                own.getAndAdd(32, 1);
                own.getAndAdd(32, -1);
            }
            return n;
        };
    }

    private static Subject limiter(RateLimiter limiter) {
        return n -> {
            long admitted = 0;
            for (int i = 0; i < n; i++) {
                if (limiter.tryAcquire()) {
                    admitted++;
                }
            }
            return admitted;
        };
    }

    private static double measure(List<Subject> subjects) throws Exception {
        ThreadMXBean bean = ManagementFactory.getThreadMXBean();
        int threads = subjects.size();
        CyclicBarrier start = new CyclicBarrier(threads + 1);
        long[] cpu = new long[threads];
        long[] calls = new long[threads];
        Thread[] workers = new Thread[threads];
        stop = false;
        for (int t = 0; t < threads; t++) {
            final int me = t;
            workers[t] = new Thread(() -> {
                try {
                    start.await();
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
                long began = bean.getCurrentThreadCpuTime();
                long n = 0;
                while (!stop) {
                    subjects.get(me).run(128);
                    n += 128;
                }
                cpu[me] = bean.getCurrentThreadCpuTime() - began;
                calls[me] = n;
            });
            workers[t].start();
        }
        start.await();
        Thread.sleep(ROUND_MS);
        stop = true;
        for (Thread w : workers) {
            w.join();
        }
        return (double) Arrays.stream(cpu).sum() / Arrays.stream(calls).sum();
    }

    private static double median(double[] v) {
        double[] sorted = v.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }

    private static List<Subject> shared(Subject s, int threads) {
        List<Subject> list = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            list.add(s);
        }
        return list;
    }

    public static void main(String[] args) throws Exception {
        RateLimiter dry = RateLimiter.create(0.0001);
        dry.tryAcquire();
        Subject[] subjects = {null, limiter(RateLimiter.create(1e12)), limiter(dry)};
        String[] names = {"guava_pair", "guava_rate_limiter", "guava_rate_limiter_refuse"};
        for (int threads = 1; threads <= 2; threads++) {
            List<Subject> pairs = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                pairs.add(pair());
            }
            double[][] ns = new double[subjects.length][ROUNDS];
            double[][] ratio = new double[subjects.length][ROUNDS];
            /* Three rounds first, for the compiler. */
            for (int round = -3; round < ROUNDS; round++) {
                double pair = 0;
                for (int s = 0; s < subjects.length; s++) {
                    double x = measure(s == 0 ? pairs : shared(subjects[s], threads));
                    if (s == 0) {
                        pair = x;
                    }
                    if (round >= 0) {
                        ns[s][round] = x;
                        ratio[s][round] = x / pair;
                    }
                }
            }
            for (int s = 0; s < subjects.length; s++) {
                System.out.printf("%s %d %.2f %.3f%n", names[s], threads, median(ns[s]), median(ratio[s]));
            }
        }
    }
}
