// SPDX-License-Identifier: MIT
// A program full of exceptions: it answers each number N with what N rounds add up to.
#include <cstdio>
#include <exception>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define APART __attribute__((noinline, noipa))

static thread_local unsigned long destroyed;

struct Guard {
    long n;
    explicit Guard(long n) : n(n) {}
    APART ~Guard() { destroyed += static_cast<unsigned long>(n); }
};

struct Odd : std::runtime_error {
    long n;
    explicit Odd(long n) : std::runtime_error("odd " + std::to_string(n)), n(n) {}
};

APART static long deep(long n, long below) {
    Guard guard(n);
    if (below == 0) {
        if (n % 2)
            throw Odd(n);
        if (n % 6 == 0)
            throw n;
        return n;
    }
    return deep(n, below - 1) + 1;
}

APART static long again(long n) {
    try {
        return deep(n, n % 9);
    } catch (const Odd &odd) {
        if (odd.n % 3 == 0)
            throw;
        return odd.n + 2;
    }
}

APART static long nested(long n) {
    try {
        return again(n);
    } catch (...) {
        std::throw_with_nested(std::logic_error("nested"));
    }
}

APART static long unnested(long n) {
    try {
        return nested(n);
    } catch (const std::exception &outer) {
        try {
            std::rethrow_if_nested(outer);
        } catch (const Odd &odd) {
            return odd.n + 5;
        } catch (long m) {
            return m + 7;
        }
        return 0;
    }
}

APART static long parsed(long n) {
    try {
        return std::stol(n % 4 ? std::to_string(n) : "none");
    } catch (const std::invalid_argument &) {
        return 11;
    }
}

APART static long looked_up(long n) {
    std::map<long, std::string> names{{1, "a"}, {2, "b"}};
    try {
        return static_cast<long>(names.at(n % 4).size());
    } catch (const std::out_of_range &) {
        return 13;
    }
}

APART static long beside(long n) {
    std::future<long> made = std::async(std::launch::async, [n] { return deep(n, 3); });
    try {
        return made.get();
    } catch (const Odd &odd) {
        return odd.n * 2;
    } catch (long m) {
        return m * 3;
    }
}

APART static long cast(long n) {
    struct Base {
        virtual ~Base() = default;
    };
    struct One : Base {};
    struct Other : Base {};
    std::unique_ptr<Base> made;
    if (n % 2)
        made = std::make_unique<One>();
    else
        made = std::make_unique<Other>();
    try {
        dynamic_cast<One &>(*made);
        return 1;
    } catch (const std::bad_cast &) {
        return 17;
    }
}

int main() {
    for (long rounds; std::cin >> rounds;) {
        unsigned long sum = 0;
        destroyed = 0;
        for (long n = 0; n < rounds; n++) {
            sum = sum * 31 + static_cast<unsigned long>(unnested(n) + parsed(n) + looked_up(n) + cast(n));
            if (n % 100 == 0)
                sum += static_cast<unsigned long>(beside(n));
            std::ostringstream text;
            text << n << ' ' << sum;
            sum += text.str().size();
        }
        std::cout << (rounds ? sum + destroyed : 0) << std::endl;
    }
}
